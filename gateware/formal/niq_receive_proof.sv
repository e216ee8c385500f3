// What holds of niq_receive, for any host and any MAC: no line is overwritten before the host has
// taken it, lines come in order, and an interrupt comes once for each number that was asked for.
module niq_receive_proof
  import niq_pkg::*;
(
    input logic         clk,
    input logic [3:0]   is_running,
    input logic [3:0]   wants_restart,
    input logic         pause,
    input logic         mac_tvalid,
    input logic [127:0] mac_tdata,
    input logic [15:0]  mac_tkeep,
    input logic         mac_tlast,
    input logic         mac_tuser,
    input logic         is_wanted,
    input queue_t       wanted_by,
    input logic         word_valid,
    input write_t       word
);
  // States of niq_receive: the front end does not find a block's own names for them.
  localparam logic [1:0] Collect = 2'd0;
  localparam logic [1:0] Write = 2'd2;

  logic started = 1'b0;
  logic rst;
  always_ff @(posedge clk) started <= 1'b1;
  assign rst = !started;

  logic [3:0]      restart, interrupt;
  logic            is_writing, is_collecting, mac_tready, line_valid;
  logic [47:0]     destination;
  row_t            line_row;
  logic [127:0]    line_data;
  failure_t        failure;
  receive_events_t events;
  // The registers restart a queue only so.
  assign restart = pause && !is_writing ? wants_restart : 4'd0;

  niq_receive dut (.*);

  // A queue of which all is observed.
  queue_t one;
  always_ff @(posedge clk) one <= one;

  logic [63:0] given, returned, awaited, interrupted;
  assign given = dut.given[one];
  assign returned = dut.returned[one];
  assign awaited = dut.awaited[one];
  assign interrupted = dut.interrupted[one];

  logic        past_started = 1'b0;
  logic        restarts, receives, interrupts;
  logic [63:0] given_before, returned_before, interrupted_before;
  always_ff @(posedge clk) begin
    past_started <= started;
    restarts <= restart[one];
    receives <= events.received && line_row[11:10] == one;
    interrupts <= interrupt[one];
    given_before <= given;
    returned_before <= returned;
    interrupted_before <= interrupted;
  end

  always_ff @(posedge clk) begin
    if (started) begin
      // 2^63 packets take thousands of years.
      assume (!given[63]);
      no_more_than_were_given: assert (returned <= given);
      no_line_is_overwritten: assert (given - returned <= 64'd256);
      interrupts_are_for_lines: assert (interrupted <= given);
      states: assert (dut.state != 2'd3);
      if (dut.state == Write && dut.queue == one) begin
        a_line_is_free: assert (given - returned < 64'd256);
      end
      if (line_valid && dut.queue == one) begin
        lines_in_order: assert (line_row == {one, given[7:0], dut.step});
        header_comes_last: assert (events.received == (dut.step == 2'd3));
        header_is_right: assert (dut.step != 2'd3 || line_data[127:96]
                                 == {dut.lap[one], 8'd0, 2'd0, dut.length[5:0]});
        length_is_valid: assert (dut.length >= 14'd14 && dut.length <= 14'd60);
      end
      one_fate: assert ($countones({events.received, events.unwanted, events.misshapen,
                                    events.no_room}) <= 1);
      if (dut.state == Collect) nothing_is_counted: assert (events[9:6] == 4'd0);
    end
    if (started && past_started && !restarts) begin
      given_by_one: assert (given == given_before + {63'd0, receives});
      taken_only_grow: assert (returned >= returned_before);
      interrupts_only_grow: assert (interrupts ? interrupted > interrupted_before
                                               : interrupted == interrupted_before);
    end
  end
endmodule
