// Takes TLPs from the PCI Express side, and numbers each when it has credit and can be kept.
//
// Source: pure/tunnel/protocol.md, section 5; `Link::push` and `number_queued` of the Rust engine.
// A non-posted request without credit moves to a queue of its own, so that posted requests and
// completions pass it. Nothing passes a posted request. `np_room` is how many further non-posted
// requests find a place; a source that sends more may stop itself.
//
// The first beat has the TLP's length, so the transmitter may begin while later beats come.
//
//          ____      ____      ____      ____
// clk   __/    \____/    \____/    \____/    \__
// s_tvalid /‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾\______
// s_tready /‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾\______
// put      /‾‾‾‾‾‾‾‾‾\__________________________   the frame has its number
// write    /‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾\______
module tunnel_admit
  import tunnel_pkg::*;
#(
    parameter int unsigned Waiting = 16  // non-posted requests that may wait
) (
    input  logic                     clk,
    input  logic                     rst,
    input  logic                     link_up,     // else TLPs are taken and dropped
    input  logic                     flush,       // with the link down: drop TLPs without a number
    output logic                     empty,
    input  logic                     s_tvalid,
    output logic                     s_tready,
    input  logic [127:0]             s_tdata,
    input  logic                     s_tlast,
    output logic [$clog2(Waiting):0] np_room,
    input  logic [10:0]              payload_max, // double words that the peer takes
    // Credits.
    input  logic                     link_start,  // with new limits, nothing is sent
    input  logic                     allow,
    input  limits_t                  limits,
    output logic                     withdrawn,   // `limits` take back granted credits
    // The frames that are kept.
    input  logic                     has_place,   // for a further frame
    input  logic [15:0]              free_beats,
    output logic                     put,
    output kept_t                    kept,
    output logic                     write,
    output logic [127:0]             write_data,
    // A reset to be numbered before anything else.
    input  logic                     put_reset,
    output logic                     reset_done,
    output logic                     dropped,     // a TLP was dropped
    output logic                     working
);
  localparam int unsigned SlotBeats = 8;
  localparam int unsigned Bits = $clog2(Waiting);

  typedef enum logic [2:0] {
    StateIdle,
    StatePass,   // the rest of a TLP is numbered
    StateTake,   // the rest of a TLP moves to the queue
    StateFirst,  // the rest of the queue's first is numbered
    StateDrop    // the rest of a TLP is dropped
  } state_t;

  state_t state;

  logic [127:0] slots[Waiting * SlotBeats];
  logic [Bits:0] first, next;
  logic [2:0]    beat_at;    // in a slot
  logic [8:0]    beats_left;
  logic has_waiting;
  assign has_waiting = first != next;
  assign np_room = (Bits + 1)'(Waiting) - (next - first);

  typedef struct packed {
    logic [10:0] dwords;
    logic [8:0]  units;
  } size_t;

  // The TLP that comes, and the size of the one that waits.
  meter_t coming;
  size_t  sizes[Waiting];
  size_t  waiting, coming_size;
  logic [127:0] slot_data;
  assign slot_data = slots[{first[Bits-1:0], beat_at}];
  assign coming = measure(s_tdata);
  assign waiting = sizes[first[Bits-1:0]];
  assign coming_size.dwords = coming.dwords;
  assign coming_size.units = coming.units;

  // Accounts: credits that each lane has used, and its limits.
  amount_t [2:0] sent, limit;
  amount_t coming_then, waiting_then;
  logic coming_may, waiting_may;
  assign coming_then = amount_plus(sent[coming.lane], cost_of(coming.units));
  assign waiting_then = amount_plus(sent[LaneNonPosted], cost_of(waiting.units));
  assign coming_may = has_place && free_beats >= {7'd0, beats_of(coming.dwords)} &&
`ifdef MUTANT_TUNNEL_DATA_UNCOUNTED
                      is_within(coming_then.headers, limit[coming.lane].headers);
`else
                      amount_within(coming_then, limit[coming.lane]);
`endif
  assign waiting_may = has_waiting && has_place &&
                       free_beats >= {7'd0, beats_of(waiting.dwords)}
`ifndef MUTANT_TUNNEL_UNPAID
                       && amount_within(waiting_then, limit[LaneNonPosted])
`endif
                       ;

  logic fits;       // the peer takes a TLP like this one, and it can wait in a slot
  assign fits = coming.known && coming.payload <= payload_max &&
                (coming.lane != LaneNonPosted || coming.dwords <= 11'(4 * SlotBeats));

  typedef enum logic [2:0] {
    DoNothing,
    DoReset,
    DoFirst,
    DoPass,
    DoTake,
    DoDrop
  } action_t;

  action_t action;
  always_comb begin
    action = DoNothing;
    if (state == StateIdle) begin
      if (link_up && put_reset) begin
        if (has_place) action = DoReset;
      end else if (link_up && waiting_may) action = DoFirst;
      else if (s_tvalid) begin
        if (!link_up || !fits) action = DoDrop;
        else if (coming.lane == LaneNonPosted && (has_waiting || !coming_may)) begin
          if (np_room != '0) action = DoTake;
        end else if (coming_may) action = DoPass;
      end
    end
  end

  always_comb begin
    withdrawn = 1'b0;
    for (int lane = 0; lane < 3; lane++) begin
      if (!amount_within(limit[lane], limits.lane[lane])) withdrawn = 1'b1;
      if (!amount_within(sent[lane], limits.lane[lane])) withdrawn = 1'b1;
    end
  end

  assign s_tready = action == DoPass || action == DoTake || action == DoDrop ||
                    state == StatePass || state == StateTake || state == StateDrop;
  assign put = action == DoPass || action == DoFirst || action == DoReset;
  assign kept.is_reset = action == DoReset;
  assign kept.dwords = action == DoFirst ? waiting.dwords : coming.dwords;
  assign write = action == DoPass || action == DoFirst || state == StateFirst ||
                 (state == StatePass && s_tvalid);
  assign write_data = (action == DoFirst || state == StateFirst) ? slot_data : s_tdata;
  assign reset_done = action == DoReset;
  assign dropped = action == DoDrop;
  assign empty = state == StateIdle && !has_waiting;
  assign working = action != DoNothing || state == StateFirst || (state != StateIdle && s_tvalid);

  logic take_last;  // the last beat of a TLP leaves its source
  assign take_last = s_tvalid && s_tready && s_tlast;

  always_ff @(posedge clk) begin
    unique case (action)
      // TLPs that were not sent are dropped.
      DoReset: first <= next;
      DoFirst: begin
        sent[LaneNonPosted] <= waiting_then;
        beats_left <= beats_of(waiting.dwords) - 9'd1;
        if (beats_of(waiting.dwords) == 9'd1) first <= first + 1'b1;
        else begin
          beat_at <= 3'd1;
          state <= StateFirst;
        end
      end
      DoPass: begin
        sent[coming.lane] <= coming_then;
        if (!s_tlast) state <= StatePass;
      end
      DoTake: begin
        slots[{next[Bits-1:0], 3'd0}] <= s_tdata;
        sizes[next[Bits-1:0]] <= coming_size;
        if (s_tlast) next <= next + 1'b1;
        else begin
          beat_at <= 3'd1;
          state <= StateTake;
        end
      end
      DoDrop: if (!s_tlast) state <= StateDrop;
      default: ;
    endcase
    unique case (state)
      StatePass, StateDrop: if (take_last) state <= StateIdle;
      StateTake:
      if (s_tvalid) begin
        slots[{next[Bits-1:0], beat_at}] <= s_tdata;
        beat_at <= beat_at + 3'd1;
        if (s_tlast) begin
          next <= next + 1'b1;
          beat_at <= 3'd0;
          state <= StateIdle;
        end
      end
      StateFirst: begin
        beat_at <= beat_at + 3'd1;
        beats_left <= beats_left - 9'd1;
        if (beats_left == 9'd1) begin
          first <= first + 1'b1;
          beat_at <= 3'd0;
          state <= StateIdle;
        end
      end
      StateIdle: if (flush) first <= next;
      default: ;
    endcase

    if (link_start) begin
      sent <= '0;
      limit <= limits;
    end else if (allow && !withdrawn) limit <= limits;
    if (rst) begin
      state <= StateIdle;
      first <= '0;
      next <= '0;
      beat_at <= 3'd0;
    end
  end
endmodule
