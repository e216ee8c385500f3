// What holds of tunnel_admit, for any source of TLPs and any peer: what is sent of each lane stays
// within the peer's limits, and the queue of non-posted requests does not overflow.
module tunnel_admit_proof
  import tunnel_pkg::*;
(
    input logic         clk,
    input logic         link_up,
    input logic         flush,
    input logic         s_tvalid,
    input logic [127:0] s_tdata,
    input logic         s_tlast,
    input logic [10:0]  payload_max,
    input logic         wants_start,
    input logic         allow,
    input limits_t      limits,
    input logic         has_place,
    input logic [15:0]  free_beats,
    input logic         put_reset
);
  logic started = 1'b0;
  logic rst, link_start;
  always_ff @(posedge clk) started <= 1'b1;
  assign rst = !started;
  assign link_start = rst || wants_start;

  localparam int unsigned Waiting = 4;
  // States of tunnel_admit: the front end does not find a block's own names for them.
  localparam logic [2:0] Take = 3'd2;
  localparam logic [2:0] First = 3'd3;
  logic         empty, s_tready, withdrawn, put, write, reset_done, dropped, working;
  logic [2:0]   np_room;
  kept_t        kept;
  logic [127:0] write_data;

  tunnel_admit #(.Waiting(Waiting)) dut (.*);

  // A lane of which all is observed. First limits are those of a greeting.
  logic [1:0] one;
  always_ff @(posedge clk) one <= one;
  always_comb begin
    assume (one <= 2'd2);
    assume (!(flush && link_up));
    if (link_start) begin
      assume (limits.lane[one].headers <= 32'h4000_0000 && limits.lane[one].data <= 32'h4000_0000);
    end
  end

  always_ff @(posedge clk) begin
    if (started) begin
      within_limits: assert (amount_within(dut.sent[one], dut.limit[one]));
      queue_holds: assert (dut.next - dut.first <= 3'(Waiting));
      taken_has_room: assert (dut.state != Take || dut.next - dut.first < 3'(Waiting));
      first_is_there: assert (dut.state != First || dut.next != dut.first);
      put_has_place: assert (!put || has_place);
      put_is_written: assert (!put || write || kept.is_reset);
      one_at_a_time: assert (!(put && dropped));
    end
  end
endmodule
