// What holds of niq_transmit, for any host, any slots and any MAC.
//
// The slots are a memory in which each row has its own place: so a beat shows which row it is.
module niq_transmit_proof
  import niq_pkg::*;
(
    input logic       clk,
    input logic       link_up,
    input logic [3:0] is_running,
    input logic [3:0] is_pushed,
    input logic [3:0] wants_restart,
    input logic       pause,
    input logic       head_is_complete,
    input logic       mac_tready,
    input logic [7:0] any_length,
    input logic [7:0] any_flags,
    input logic       is_wrong
);
  // States of niq_transmit: the front end does not find a block's own names for them.
  localparam logic [1:0] Head = 2'd1;
  localparam logic [1:0] Load = 2'd2;

  logic started = 1'b0;
  logic rst;
  always_ff @(posedge clk) started <= 1'b1;
  assign rst = !started;

  queue_t            head_queue;
  row_t              row_at;
  logic [127:0]      row;
  logic [3:0][63:0]  taken, credit, completed;
  failure_t          failure;
  transmit_events_t  events;
  logic              is_loading, is_sending, mac_tvalid, mac_tlast;
  logic [127:0]      mac_tdata;
  logic [15:0]       mac_tkeep;
  logic [3:0]        restart;
  // The registers restart a queue only so.
  assign restart = pause && !is_loading ? wants_restart : 4'd0;

  niq_transmit dut (.*);

  // A queue of which all is observed.
  queue_t one;
  always_ff @(posedge clk) one <= one;

  row_t came_from;
  always_ff @(posedge clk) came_from <= row_at;
  always_comb begin
    row = 128'd0;
    row[11:0] = came_from;
    if (came_from[1:0] == 2'd3) begin
      row[127:96] = {is_wrong ? 16'hffff ^ dut.lap[head_queue] : dut.lap[head_queue],
                     any_flags, any_length};
    end
  end

  // tx_mac: a beat stays until it is taken.
  logic         waits;
  logic [127:0] data_before;
  logic [15:0]  keep_before;
  logic         last_before;
  always_ff @(posedge clk) begin
    waits <= mac_tvalid && !mac_tready && !rst;
    data_before <= mac_tdata;
    keep_before <= mac_tkeep;
    last_before <= mac_tlast;
    if (started && waits) begin
      stream_holds_valid: assert (mac_tvalid);
      stream_holds_data: assert (mac_tdata == data_before && mac_tkeep == keep_before
                                 && mac_tlast == last_before);
    end
  end

  // Credits: never more than was taken, and never a quarter of the slots behind.
  always_ff @(posedge clk) begin
    if (started) begin
      credits_are_taken: assert (credit[one] <= taken[one]
                                 && taken[one] - credit[one] < 64'd64);
      credits_are_counted: assert (taken[one] - credit[one] == {57'd0, dut.unreported[one]});
      // 2^63 packets take thousands of years.
      assume (!taken[one][63]);
      completions_are_reported: assert (completed[one] <= credit[one]);
    end
  end

  // A slot is taken once, and leaves or is lost with the link; or its queue fails.
  logic [63:0] taken_before;
  logic        restarts, takes;
  logic        past_started = 1'b0;
  always_ff @(posedge clk) begin
    past_started <= started;
    taken_before <= taken[one];
    restarts <= restart[one];
    takes <= (events.sent || events.link_down) && head_queue == one;
    if (started && past_started) begin
      taken_by_one: assert (taken[one] == (restarts ? 64'd0 : taken_before + {63'd0, takes}));
      one_fate: assert (!(events.sent && events.link_down));
      a_faulty_slot_stays: assert (!(failure.valid && failure.fault != FAULT_MEMORY
                                     && (events.sent || events.link_down)));
    end
  end

  // What leaves: the rows of the slot that was taken, in order, as many as its length has.
  logic [9:0] slot;     // queue and slot of the packet that leaves
  logic [1:0] beat;
  always_ff @(posedge clk) begin
    if (events.sent) begin
      slot <= {head_queue, taken[head_queue][7:0]};
      beat <= 2'd0;
    end else if (mac_tvalid && mac_tready) begin
      beat <= beat + 2'd1;
    end
  end
  logic [5:0] last_byte;
  assign last_byte = dut.header.length[5:0] - 6'd1;
  always_ff @(posedge clk) begin
    if (started && mac_tvalid) begin
      beats_in_order: assert (beat == dut.step);
      rows_in_order: assert (beat == 2'd3 || mac_tdata[11:0] == {slot, beat});
      length_is_valid: assert (dut.header.length >= 8'd14 && dut.header.length <= 8'd60);
      packet_is_whole: assert (mac_tlast == (beat == last_byte[5:4]));
      last_beat_is_cut: assert (mac_tkeep == (mac_tlast ? 16'hffff >> (15 - last_byte[3:0])
                                                        : 16'hffff));
    end
    // What the proof of these needs to know of the states between.
    if (started) begin
      if (is_loading) begin
        row_was_asked: assert (came_from[11:2] == {head_queue, taken[head_queue][7:0]});
        row_in_turn: assert (came_from[1:0] == (dut.state == Head ? 2'd3 : dut.step));
      end
      if (dut.state == Load) begin
        loads_three: assert (dut.step != 2'd3);
        judged: assert (dut.step == 2'd0
                        || (dut.header.length >= 8'd14 && dut.header.length <= 8'd60));
        row_0_is_kept: assert (dut.step < 2'd1
                               || dut.line[0][11:0] == {came_from[11:2], 2'd0});
        row_1_is_kept: assert (dut.step < 2'd2
                               || dut.line[1][11:0] == {came_from[11:2], 2'd1});
      end
      if (is_sending) begin
        rows_are_kept: assert (dut.line[0][11:0] == {slot, 2'd0}
                               && dut.line[1][11:0] == {slot, 2'd1}
                               && dut.line[2][11:0] == {slot, 2'd2});
      end
    end
  end
endmodule
