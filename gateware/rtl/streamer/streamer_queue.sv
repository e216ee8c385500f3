// Slots of the stream buffer, and the commands that move their chunks.
//
// Slots are used in a ring and come free in order. A closed slot becomes a command; commands end
// in any order. A command that fails is given again, and after three attempts its chunk is lost.
// The submission queue holds no entries: `submitted` has the command of each place, and
// streamer_window makes up the entry when the SSD reads it.
//
// The completion queue is polled: an entry counts once its phase tag is that of this lap.
module streamer_queue
  import streamer_pkg::*;
#(
    parameter int unsigned Slots = 512,
    parameter int unsigned Entries = 64,
    localparam int unsigned EntryBits = $clog2(Entries),
    localparam int unsigned SlotBits = $clog2(Slots)
) (
    input  logic                 clk,
    input  logic                 rst,
    input  setup_t               setup,
    input  logic                 start,
    input  logic                 is_replay,
    output logic                 is_clearing,

    // Slots.
    output logic                 has_slot,
    output slot_t                slot,        // the next to fill
    input  logic                 take,
    input  logic                 give_back,
    input  logic                 filled,
    input  logic                 close,
    input  page_t                page,        // with `take`
    output logic                 is_idle,     // no slot is in use

    // In the order of slots: a chunk is on the medium, or lost, and its slot is free.
    output logic                 retire,
    output logic                 retire_lost,
    output logic                 retire_full, // it is lost as the medium has no room for it
    output slot_t                tail,
    output page_t                tail_page,
    output logic                 deliver,     // replay: its bytes are wanted
    input  logic                 delivered,
    input  logic                 skip,        // replay: they are not wanted any more
    output logic                 arrive,      // the medium has done the command of `arrived`
    output slot_t                arrived,

    input  logic                 flush,       // stays until `flushed`
    output logic                 flushed,
    output logic                 flush_failed,

    // The SSD's window.
    input  logic [EntryBits-1:0] entry,
    output command_t             entry_command,
    input  slot_t                entry_slot,
    output page_t                entry_page,  // a cycle after `entry_slot`
    output logic [EntryBits-1:0] completion,
    input  logic [31:0]          completed,   // double word 3 of that entry
    output logic                 clear_entry,

    // Doorbells.
    output logic                 bell_awvalid,
    input  logic                 bell_awready,
    output logic [63:0]          bell_awaddr,
    output logic                 bell_wvalid,
    input  logic                 bell_wready,
    output logic [31:0]          bell_wdata,
    input  logic                 bell_bvalid,
    output logic [10:0]          outstanding
);
  typedef enum logic [2:0] {
    CLEAR,
    WAIT,
    CHECK,
    LOOK,
    DELIVER
  } step_t;

  step_t                step;
  logic [14:0]          in_use, pending, flights, clear_at;
  slot_t                next;
  logic [EntryBits-1:0] sq_tail, sq_rung, cq_head, cq_rung;
  logic                 phase, is_flushing, looks;
  command_t             submitted[Entries];

  function automatic logic [EntryBits-1:0] after(input logic [EntryBits-1:0] place);
    return {{11 - EntryBits{1'b0}}, place} == setup.entries - 11'd1 ? '0 : place + 1'b1;
  endfunction

  assign has_slot = in_use < setup.chunks;
  assign is_idle = in_use == 15'd0;
  assign is_clearing = step == CLEAR;
  assign clear_entry = is_clearing;

  // The completion at the head of the queue.
  logic       is_completed, succeeds, is_full, is_flush, gives_again;
  logic [7:0] code;
  logic [2:0] kind;
  slot_t      of_slot;
  fate_t      fate;
  logic [31:0] taken;
  assign completion = is_clearing ? clear_at[EntryBits-1:0] : cq_head;
  assign is_completed = completed[16] == phase;
  // The SSD may write the entry once more meanwhile.
  always_ff @(posedge clk) if (step == WAIT) taken <= completed;
  assign code = taken[24:17];
  assign kind = taken[27:25];
  assign succeeds = {kind, code} == 11'd0;
  // LBA Out of Range, Capacity Exceeded.
  assign is_full = kind == 3'd0 && (code == 8'h80 || code == 8'h81);
  assign is_flush = taken[15:0] == FLUSH;
  assign of_slot = taken[13:0];
`ifdef MUTANT_STREAMER_NO_RETRY
  assign gives_again = !succeeds && !is_full && taken[15:14] > AttemptLast;
`else
  assign gives_again = !succeeds && !is_full && taken[15:14] < AttemptLast;
`endif

  // The work of a cycle.
  logic may_submit, submits, submits_flush, resubmits, ends_command, checks;
`ifdef MUTANT_STREAMER_QUEUE_OVERRUN
  assign may_submit = outstanding < setup.entries;
`else
  assign may_submit = outstanding < setup.entries - 11'd1;
`endif
  assign checks = step == CHECK && !is_flush && fate == UNDER_WAY;
  assign submits = step == WAIT && !is_completed && !(looks && flights != 15'd0)
                   && pending != 15'd0 && may_submit;
  assign submits_flush = step == WAIT && !is_completed && flights == 15'd0 && pending == 15'd0
                         && flush && !is_flushing && !flushed && may_submit;
  assign resubmits = checks && gives_again;
  assign ends_command = checks && !gives_again;

  logic     gives;
  command_t given;
  assign gives = submits || submits_flush || resubmits;
  always_comb begin
    given = {2'd0, next};
    if (submits_flush) given = FLUSH;
    if (resubmits) given = {taken[15:14] + 2'd1, of_slot};
  end
  always_ff @(posedge clk) if (gives) submitted[sq_tail] <= given;
  assign entry_command = submitted[entry];

  // The fates of slots: one port reads for completions and the tail, one writes.
  logic                fate_write;
  logic [SlotBits-1:0] fate_at;
  logic [2:0]          fate_value, fate_shown;
  always_comb begin
    fate_write = is_clearing || submits || ends_command;
    fate_at = next[SlotBits-1:0];
    fate_value = {1'b0, UNDER_WAY};
    if (is_clearing) begin
      fate_at = clear_at[SlotBits-1:0];
      fate_value = {1'b0, NO_COMMAND};
    end else if (ends_command) begin
      fate_at = of_slot[SlotBits-1:0];
      fate_value = {is_full, succeeds ? STORED : LOST};
    end
  end
  ram_2p #(
      .Width(3),
      .Depth(Slots)
  ) fates (
      .clk, .write(fate_write), .waddr(fate_at), .wdata(fate_value),
      .raddr(is_completed ? completed[SlotBits-1:0] : tail[SlotBits-1:0]), .rdata(fate_shown)
  );
  // A slot that this memory does not have is under no way.
  assign fate = {1'b0, of_slot} < setup.chunks || step == LOOK
                ? fate_t'(fate_shown[1:0]) : NO_COMMAND;

  // The pages of chunks on the medium, for entries and for the tail.
  ram_2p #(
      .Width(36),
      .Depth(Slots)
  ) pages_of_entries (
      .clk, .write(take), .waddr(slot[SlotBits-1:0]), .wdata(page),
      .raddr(entry_slot[SlotBits-1:0]), .rdata(entry_page)
  );
  ram_2p #(
      .Width(36),
      .Depth(Slots)
  ) pages_of_tail (
      .clk, .write(take), .waddr(slot[SlotBits-1:0]), .wdata(page),
      .raddr(tail[SlotBits-1:0]), .rdata(tail_page)
  );

  logic looked, is_stored, is_lost;
  assign looked = step == LOOK;
`ifdef MUTANT_STREAMER_RETIRE_EARLY
  assign is_stored = looked && fate != LOST;
`else
  assign is_stored = looked && fate == STORED;
`endif
  assign is_lost = looked && fate == LOST;
  assign deliver = step == DELIVER;
  assign arrive = ends_command && succeeds;
  assign arrived = of_slot;
  assign retire = (is_stored && (!is_replay || skip)) || is_lost || (deliver && delivered);
  assign retire_lost = is_lost;
  assign retire_full = fate_shown[2];

  logic ends_flush;
  assign ends_flush = step == CHECK && is_flush && is_flushing;

  always_ff @(posedge clk) begin
    if (rst || !setup.enable) begin
      step <= CLEAR;
      clear_at <= 15'd0;
      phase <= 1'b1;
      sq_tail <= '0;
      cq_head <= '0;
      outstanding <= 11'd0;
      is_flushing <= 1'b0;
      flushed <= 1'b0;
      looks <= 1'b0;
    end else begin
      clear_at <= clear_at + 15'd1;
      looks <= !looks;
      unique case (step)
        CLEAR: if (clear_at == 15'(Slots > Entries ? Slots : Entries)) step <= WAIT;
        WAIT:
        if (is_completed) step <= CHECK;
        else if (looks && flights != 15'd0) step <= LOOK;
        CHECK: begin
          step <= WAIT;
          cq_head <= after(cq_head);
          if (after(cq_head) == '0) phase <= !phase;
        end
        LOOK: step <= is_stored && is_replay && !skip ? DELIVER : WAIT;
        default: if (delivered) step <= WAIT;
      endcase
      if (gives) sq_tail <= after(sq_tail);
      outstanding <= outstanding + {10'd0, submits || submits_flush}
                     - {10'd0, ends_command || ends_flush};
      if (submits_flush) is_flushing <= 1'b1;
      if (ends_flush) begin
        is_flushing <= 1'b0;
        flushed <= 1'b1;
        flush_failed <= !succeeds;
      end
      if (!flush) flushed <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (rst || start || is_clearing) begin
      in_use <= 15'd0;
      pending <= 15'd0;
      flights <= 15'd0;
      slot <= 14'd0;
      next <= 14'd0;
      tail <= 14'd0;
    end else begin
      in_use <= in_use + {14'd0, take} - {14'd0, give_back} - {14'd0, retire};
      pending <= pending + {14'd0, close} - {14'd0, submits};
      flights <= flights + {14'd0, submits} - {14'd0, retire};
      if (filled) slot <= slot_after(setup.chunks, slot);
      if (submits) next <= slot_after(setup.chunks, next);
      if (retire) tail <= slot_after(setup.chunks, tail);
    end
  end

  // Doorbells: the queue's end moves on while one is being written.
  logic is_ringing, is_head, has_address, has_value;
  assign bell_awvalid = is_ringing && !has_address;
  assign bell_wvalid = is_ringing && !has_value;
  assign bell_awaddr = {is_head ? setup.head_bell : setup.tail_bell, 2'b00};
  assign bell_wdata = {{32 - EntryBits{1'b0}}, is_head ? cq_rung : sq_rung};
  always_ff @(posedge clk) begin
    if (rst) begin
      is_ringing <= 1'b0;
      sq_rung <= '0;
      cq_rung <= '0;
      is_head <= 1'b0;
    end else if (is_ringing) begin
      if (bell_awready) has_address <= 1'b1;
      if (bell_wready) has_value <= 1'b1;
      if (bell_bvalid) is_ringing <= 1'b0;
    end else if (is_clearing) begin
      sq_rung <= '0;
      cq_rung <= '0;
    end else begin
      has_address <= 1'b0;
      has_value <= 1'b0;
      if (sq_rung != sq_tail) begin
        is_ringing <= 1'b1;
        is_head <= 1'b0;
        sq_rung <= sq_tail;
      end else if (cq_rung != cq_head) begin
        is_ringing <= 1'b1;
        is_head <= 1'b1;
        cq_rung <= cq_head;
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, setup, taken[31:28], taken[16], entry_slot};
endmodule
