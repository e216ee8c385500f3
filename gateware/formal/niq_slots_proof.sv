// What holds of niq_slots: a slot is complete once all its double words have come, in any order,
// and on every lap.
//
// The host keeps to its credits, and stores each double word once. Queues are taken from as
// niq_transmit does: only a complete slot, and the next one of its queue.
module niq_slots_proof
  import niq_pkg::*;
(
    input logic   clk,
    input logic   wants_clear,
    input queue_t wants_queue,
    input logic   wants_write,
    input write_t write,
    input queue_t head_queue,
    input logic   wants_take,
    input row_t   row_at
);
  logic started = 1'b0;
  logic rst;
  always_ff @(posedge clk) started <= 1'b1;
  assign rst = !started;

  logic            clear, cleared, write_valid, head_is_complete;
  queue_t          clear_queue;
  logic [3:0][8:0] taken;
  logic [127:0]    row;

  niq_slots dut (.*);

  // A start of a queue, as niq_registers does it: first its counts are 0, then its bits.
  logic starts;
  assign starts = started && wants_clear && !clear;
  always_ff @(posedge clk) begin
    if (rst) clear <= 1'b0;
    else if (starts) clear <= 1'b1;
    else if (cleared) clear <= 1'b0;
    if (starts) clear_queue <= wants_queue;
  end

  // A slot of which all is observed: which of its double words have come on this lap.
  queue_t      one;
  logic [7:0]  slot;
  logic [15:0] came;
  logic        is_known;  // since its queue was started
  always_ff @(posedge clk) begin
    one <= one;
    slot <= slot;
  end

  logic        takes, hits;
  logic [15:0] stored;
  assign takes = started && wants_take && !clear && !starts && head_is_complete;
  assign write_valid = started && wants_write && !clear;
  assign hits = write_valid && write.address[15:14] == one && write.address[13:12] == 2'd0
                && write.address[11:4] == slot;
  // The double words of a write lie from its address on, in their lanes.
  always_comb begin
    stored = 16'd0;
    for (int i = 0; i < 4; i++) begin
      logic [1:0] lane;
      lane = write.address[1:0] + 2'(i);
      if (write.strobe[lane]) stored[4'(write.address[3:0] + 4'(i))] = 1'b1;
    end
  end

  always_ff @(posedge clk) begin
    for (int i = 0; i < 4; i++) begin
      if (rst || (starts && wants_queue == 2'(i))) taken[i] <= 9'd0;
      else if (takes && head_queue == 2'(i)) taken[i] <= taken[i] + 9'd1;
    end
    if (hits) came <= came | stored;
    if (takes && head_queue == one && taken[one][7:0] == slot) came <= 16'd0;
    if (starts && wants_queue == one) is_known <= 1'b0;
    if (clear && clear_queue == one && dut.clear_slot == slot) begin
      came <= 16'd0;
      is_known <= 1'b1;
    end
    if (rst) is_known <= 1'b0;
  end

  // The host: slots alone come here; within a line; no double word twice; not ahead of its credits.
  always_comb begin
    assume (!write_valid || write.address[13:12] == 2'd0);
    assume (!write_valid || write.address[3:2] != 2'd3
            || (write.strobe & ~(4'hf << write.address[1:0])) == 4'd0);
    assume (!hits || (stored & came) == 16'd0);
  end

  logic        is_settled;
  logic        lap;
  logic [15:0] bits;
  assign is_settled = is_known && !(clear && clear_queue == one && dut.clear_slot <= slot);
  assign lap = slot >= taken[one][7:0] ? taken[one][8] : !taken[one][8];
  assign bits = dut.come[{one, slot}];

  always_ff @(posedge clk) begin
    if (started) begin
      if (is_settled) begin
        bits_mean_what_came: assert (bits == (lap ? ~came : came));
        if (head_queue == one && taken[one][7:0] == slot && !clear) begin
          complete_once_all_came: assert (head_is_complete == (came == 16'hffff));
        end
      end
      if (!clear) slots_restart_at_0: assert (dut.clear_slot == 8'd0);
      if (clear && clear_queue == one) begin
        start_is_from_0: assert (taken[one] == 9'd0);
      end
    end
  end
endmodule
