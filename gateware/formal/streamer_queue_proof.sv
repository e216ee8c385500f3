// Properties of streamer_queue, with 4 slots and queues of up to 4 entries, for any SSD: fewer
// commands than entries are under way, a slot has one command at a time, and each closed chunk is
// on the medium or lost exactly once, in order. An address or a value of a doorbell stays until it
// is taken.
module streamer_queue_proof
  import streamer_pkg::*;
(
    input logic        clk,
    input logic [10:0] any_entries,
    input logic        is_replay,
    input logic        wants_start,
    input logic        wants_take,
    input logic        wants_close,
    input page_t       page,
    input logic        delivered,
    input logic        wants_flush,
    input logic [1:0]  entry,
    input slot_t       entry_slot,
    input logic [31:0] completed,
    input logic        bell_awready,
    input logic        bell_wready,
    input logic        wants_answer
);
  localparam int unsigned Slots = 4;
  localparam int unsigned Entries = 4;

  logic started = 1'b0;
  logic rst;
  always_ff @(posedge clk) started <= 1'b1;
  assign rst = !started;

  setup_t      setup;
  logic [10:0] entries;
  logic        replays;
  always_ff @(posedge clk) begin
    entries <= entries;
    replays <= replays;
  end
  always_comb begin
    setup = '0;
    setup.enable = 1'b1;
    setup.chunks = 15'(Slots);
    setup.entries = entries;
    assume (entries >= 11'd2 && entries <= 11'(Entries));
    assume (is_replay == replays);
  end

  logic        is_clearing, has_slot, is_idle, retire, retire_lost, retire_full, deliver, skip;
  logic        take, give_back, filled, close, arrive, flush, flushed, flush_failed, clear_entry;
  logic        start, bell_awvalid, bell_wvalid, bell_bvalid;
  slot_t       slot, tail, arrived;
  page_t       tail_page, entry_page;
  command_t    entry_command;
  logic [1:0]  completion;
  logic [63:0] bell_awaddr;
  logic [31:0] bell_wdata;
  logic [10:0] outstanding;

  assign start = 1'b0;
  assign skip = 1'b0;
  assign give_back = 1'b0;
  // A chunk comes whole; later the memory has it.
  assign take = started && !is_clearing && wants_take && has_slot;
  assign filled = take;
  logic [14:0] open;  // filled, not closed
  assign close = started && wants_close && open != 15'd0;
  assign flush = wants_flush && is_idle;
  logic rings, is_addressed, has_value;
  assign is_addressed = dut.has_address || bell_awready;
  assign has_value = dut.has_value || bell_wready;
  assign bell_bvalid = rings && wants_answer;

  streamer_queue #(.Slots(Slots), .Entries(Entries)) dut (.*);

  always_ff @(posedge clk) begin
    if (rst) rings <= 1'b0;
    else rings <= dut.is_ringing && !bell_bvalid && (rings || (is_addressed && has_value));
    if (rst || is_clearing) open <= 15'd0;
    else open <= open + {14'd0, take} - {14'd0, close};
  end

  // Commands under way, as the SSD sees them.
  logic [10:0] given, ended;
  logic [14:0] closed, gone;
  logic [3:0]  has_command;
  always_ff @(posedge clk) begin
    if (rst || is_clearing) begin
      given <= 11'd0;
      ended <= 11'd0;
      closed <= 15'd0;
      gone <= 15'd0;
      has_command <= 4'd0;
    end else begin
      given <= given + {10'd0, dut.gives && !dut.resubmits};
      ended <= ended + {10'd0, dut.ends_command || dut.ends_flush};
      closed <= closed + {14'd0, close};
      gone <= gone + {14'd0, retire};
      if (dut.submits) has_command[dut.next[1:0]] <= 1'b1;
      if (dut.ends_command) has_command[dut.of_slot[1:0]] <= 1'b0;
    end
    if (started && !is_clearing) begin
      fewer_commands_than_entries: assert (given - ended <= entries - 11'd1);
      commands_are_counted: assert (outstanding == given - ended);
      a_slot_has_one_command: assert (!dut.submits || !has_command[dut.next[1:0]]);
      a_command_ends_once: assert (!dut.ends_command || has_command[dut.of_slot[1:0]]);
      chunks_go_once: assert (closed - gone == dut.pending + dut.flights);
      a_chunk_goes_when_its_command_ended: assert (!retire || !has_command[tail[1:0]]);
      none_goes_that_did_not_come: assert (!retire || dut.flights != 15'd0);
    end
  end

  logic        aw_waits, w_waits;
  logic [63:0] address_before;
  logic [31:0] value_before;
  always_ff @(posedge clk) begin
    aw_waits <= bell_awvalid && !bell_awready && !rst;
    w_waits <= bell_wvalid && !bell_wready && !rst;
    address_before <= bell_awaddr;
    value_before <= bell_wdata;
    if (started) begin
      if (aw_waits) bell_address_holds: assert (bell_awvalid && bell_awaddr == address_before);
      if (w_waits) bell_value_holds: assert (bell_wvalid && bell_wdata == value_before);
    end
  end

  logic unused;
  assign unused = &{1'b0, any_entries, wants_start, retire_lost, retire_full, arrive, flushed,
                    flush_failed, clear_entry, slot, arrived, tail_page, entry_page,
                    entry_command, completion, deliver};
endmodule
