// The transmit slots of all queues, and which double words of each have come.
//
// Source: pure/niq/README.md, "BAR2: the window". A processor's write-combining buffer may leave in
// parts and in any order, so a slot is complete once all its 16 double words have come. A bit for
// each notes that. Its meaning changes from lap to lap: on even laps 1 means that the double word
// has come, on odd laps 0. So only writes of the host change these bits, and taking a slot is
// nothing but an increment of `taken`. `clear` zeroes the bits of a queue, a slot each cycle.
//
// Rows are read as from block RAM: `row` is that of `row_at` one cycle before.
module niq_slots
  import niq_pkg::*;
(
    input  logic              clk,
    input  logic              rst,

    // Zero the queue's bits; `cleared` in the last cycle of that. No write meanwhile.
    input  logic              clear,
    input  queue_t            clear_queue,
    output logic              cleared,

    // Double words for slots: `address` is that in the window.
    input  logic              write_valid,
    input  write_t            write,

    // The number of slots that were taken from each queue, modulo twice the number of slots.
    input  logic [3:0][8:0]   taken,

    // Whether the next slot of `head_queue` is complete.
    input  queue_t            head_queue,
    output logic              head_is_complete,

    input  row_t              row_at,
    output logic [127:0]      row
);
  logic [15:0] come[QUEUES * SLOTS];

  // A lap is the number of a slot divided by the number of slots; these are of its bit 0.
  function automatic logic lap_bit(input logic [8:0] count, input logic [7:0] slot);
`ifdef MUTANT_NIQ_LAP_BEHIND
    return slot > count[7:0] ? count[8] : !count[8];
`else
    return slot >= count[7:0] ? count[8] : !count[8];
`endif
  endfunction

  queue_t      queue;
  logic [7:0]  slot;
  logic [3:0]  lanes;  // from the first address to the end of its row
  logic [15:0] mask, come_now, come_next;
  logic        polarity;
  logic [8:0]  head;

  assign queue = write.address[15:14];
  assign slot = write.address[11:4];
  assign come_now = come[{queue, slot}];
  assign polarity = !lap_bit(taken[queue], slot);
  assign lanes = 4'hf << write.address[1:0];
  assign mask = {12'd0, write.strobe & lanes} << {write.address[3:2], 2'b00}
                | {12'd0, write.strobe & ~lanes} << {write.address[3:2] + 2'd1, 2'b00};
  assign come_next = polarity ? come_now | mask : come_now & ~mask;

  assign head = taken[head_queue];
`ifdef MUTANT_NIQ_SLOT_BY_HEADER
  // A slot counts as complete once its header has come.
  assign head_is_complete = come[{head_queue, head[7:0]}][15] == !head[8];
`else
  assign head_is_complete = come[{head_queue, head[7:0]}] == {16{!head[8]}};
`endif

  logic [7:0] clear_slot;

  always_ff @(posedge clk) begin
    if (rst || !clear) clear_slot <= 8'd0;
    else clear_slot <= clear_slot + 8'd1;
  end
  assign cleared = clear && clear_slot == 8'hff;

  always_ff @(posedge clk) begin
    if (clear) come[{clear_queue, clear_slot}] <= 16'd0;
    else if (write_valid) come[{queue, slot}] <= come_next;
  end

  for (genvar i = 0; i < 4; i++) begin : g_bank
    logic [31:0] bank[QUEUES * SLOTS * 4];
    row_t        at;
    assign at = {queue, write.address[11:2]} + {11'd0, !lanes[i]};

    always_ff @(posedge clk) begin
      if (write_valid && write.strobe[i]) bank[at] <= write.data[i];
      row[32*i +: 32] <= bank[row_at];
    end
  end

  logic unused;
  assign unused = &{1'b0, write.window, write.address[13:12]};
endmodule
