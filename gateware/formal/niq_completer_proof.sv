// What holds of niq_completer, for any request and any PCIe block: a completion has as many double
// words as its header says, ends at the read completion boundary, and leaves without gaps.
module niq_completer_proof
  import niq_pkg::*;
(
    input logic             clk,
    input logic [15:0]      completer,
    input logic             read_valid,
    input read_t            read,
    input logic             is_clearing,
    input logic             is_writing,
    input logic [31:0]      register_data,
    input logic [3:0][31:0] line_data,
    input logic [3:0][63:0] credit,
    input logic [3:0][63:0] completed,
    input logic             tlp_tready
);
  logic started = 1'b0;
  logic rst;
  always_ff @(posedge clk) started <= 1'b1;
  assign rst = !started;

  logic         read_ready, is_reading, read_follows, tlp_tvalid, tlp_tlast, is_busy;
  logic [15:0]  read_address, tlp_tkeep;
  logic [127:0] tlp_tdata;

  niq_completer dut (.*);

  always_comb assume (!read_valid || (read.length != 11'd0 && read.length <= 11'd1024));

  // The receiver begins no line while one is read.
  logic writing_before;
  always_ff @(posedge clk) writing_before <= is_writing;
  logic waited;
  always_ff @(posedge clk) waited <= is_reading;
  always_comb assume (!(is_writing && !writing_before && waited));

  logic         waits, last_before;
  logic [127:0] data_before;
  logic [15:0]  keep_before;
  logic         is_inside;  // a TLP has begun and not ended
  logic [9:0]   left;       // double words of it behind this beat
  logic [9:0]   length;
  logic [6:0]   low;
  logic [31:0]  header0, header2;

  assign header0 = big_endian(tlp_tdata[31:0]);
  assign header2 = big_endian(tlp_tdata[95:64]);
  assign length = header0[30] ? header0[9:0] : 10'd0;
  assign low = header2[6:0];

  always_ff @(posedge clk) begin
    waits <= tlp_tvalid && !tlp_tready && !rst;
    data_before <= tlp_tdata;
    keep_before <= tlp_tkeep;
    last_before <= tlp_tlast;
    if (rst) begin
      is_inside <= 1'b0;
    end else if (tlp_tvalid && tlp_tready) begin
      is_inside <= !tlp_tlast;
      left <= is_inside ? left - 10'd4 : length - 10'd1;
    end
    if (started) begin
      if (waits) begin
        stream_holds_valid: assert (tlp_tvalid);
        stream_holds_data: assert (tlp_tdata == data_before && tlp_tkeep == keep_before
                                   && tlp_tlast == last_before);
      end
      if (is_inside) no_gaps: assert (tlp_tvalid);
      if (tlp_tvalid && !is_inside) begin
        within_boundary: assert ({3'd0, low[6:2]} + length <= 10'd32);
        first_beat: assert (tlp_tlast == (length <= 10'd1)
                            && tlp_tkeep == (length == 10'd0 ? 16'h0fff : 16'hffff));
      end
      if (tlp_tvalid && is_inside) begin
        as_many_as_said: assert (tlp_tlast == (left <= 10'd4) && left != 10'd0);
        kept_as_said: assert (tlp_tkeep == (left >= 10'd4 ? 16'hffff
                                            : 16'hffff >> (5'd16 - {left[2:0], 2'd0})));
      end
      queue_holds: assert (dut.held <= 5'd16);
      lines_are_left_alone: assert (!(is_writing && dut.fetch.valid && dut.request.window));
    end
  end
endmodule
