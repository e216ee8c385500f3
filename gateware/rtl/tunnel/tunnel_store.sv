// Keeps TLPs that have come over the tunnel until the PCI Express side takes them.
//
// Source: pure/tunnel/protocol.md, section 5; PCI Express Base 4.0, table 2-40. Posted requests and
// completions leave in their order. Non-posted requests have a queue of their own, and leave while
// `m_np_ok` is high, behind all posted requests that came before them. So a side that takes no
// non-posted request stops no other packet.
//
// A TLP is written beat by beat with `write`, and counts from `commit` on; `undo` forgets the
// beats since then. A reset is an item in the order of posted requests: it waits at `reset_valid`
// until `reset_ready`, and drops the non-posted requests before it.
//
//              ____      ____      ____      ____      ____      ____
// clk       __/    \____/    \____/    \____/    \____/    \____/    \__
// write     __/‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾\_______________________________________
// commit    ______________________/‾‾‾‾‾‾‾‾‾\_____________________________
// m_tvalid  __________________________________________/‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾
// passed    __________________________________________________/‾‾‾‾‾‾‾‾‾\_
module tunnel_store
  import tunnel_pkg::*;
#(
    parameter int unsigned MainBeats = 2048,  // for posted requests and completions
    parameter int unsigned MainItems = 256,
    parameter int unsigned SideBeats = 128,   // for non-posted requests
    parameter int unsigned SideItems = 32
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         flush,        // drop everything; a TLP that is under way ends first
    output logic         empty,        // nothing is kept, and nothing is under way
    // From the receiver.
    input  logic         write,
    input  lane_t        write_lane,
    input  logic [127:0] write_data,
    output logic         full,
    input  logic         commit,
    input  logic         undo,
    input  lane_t        lane,         // of the TLP that is committed
    input  logic [10:0]  dwords,
    input  logic [8:0]   units,
    input  logic         put_reset,
    // To the PCI Express side.
    output logic         m_tvalid,
    input  logic         m_tready,
    output logic [127:0] m_tdata,
    output logic [3:0]   m_tkeep,      // a bit for each double word
    output logic         m_tlast,
    input  logic         m_np_ok,
    output logic         reset_valid,
    input  logic         reset_ready,
    // A TLP has left.
    output logic         passed,
    output lane_t        passed_lane,
    output logic [8:0]   passed_units,
    output logic         working       // a further cycle does something
);
  localparam int unsigned MainBits = $clog2(MainBeats);
  localparam int unsigned SideBits = $clog2(SideBeats);
  localparam int unsigned MainItemBits = $clog2(MainItems);
  localparam int unsigned SideItemBits = $clog2(SideItems);

  typedef struct packed {
    logic        is_reset;
    logic        is_posted;
    logic [10:0] dwords;
    logic [8:0]  units;
  } main_item_t;

  typedef struct packed {
    logic [15:0] behind;  // posted requests and resets that came before, counted
    logic [10:0] dwords;
    logic [8:0]  units;
  } side_item_t;

  typedef enum logic [1:0] {
    StateIdle,
    StateMain,
    StateSide,
    StateReset
  } state_t;

  state_t state;
  logic   from_side;

  // Pointers have a bit more than addresses, so that full and empty differ.
  logic [MainBits:0]     main_read, main_kept, main_write;
  logic [SideBits:0]     side_read, side_kept, side_write;
  logic [MainItemBits:0] main_first, main_next;
  logic [SideItemBits:0] side_first, side_next;
  logic [15:0] came;  // posted requests and resets that were committed
  logic [15:0] gone;  // of these, those that have left

  main_item_t main_items[MainItems];
  side_item_t side_items[SideItems];
  main_item_t main_item, main_new;
  side_item_t side_item, side_new;
  assign main_item = main_items[main_first[MainItemBits-1:0]];
  assign side_item = side_items[side_first[SideItemBits-1:0]];
  always_comb begin
    main_new.is_reset = put_reset;
    main_new.is_posted = lane == LanePosted;
    main_new.dwords = dwords;
    main_new.units = units;
`ifdef MUTANT_TUNNEL_POSTED_PASSED
    // A non-posted request may leave before posted ones that came before it.
    side_new.behind = came - 16'd8;
`else
    side_new.behind = came;
`endif
    side_new.dwords = dwords;
    side_new.units = units;
  end

  logic to_side;
  logic main_full, side_full;
  assign to_side = write_lane == LaneNonPosted;
  assign main_full = main_write - main_read == (MainBits + 1)'(MainBeats);
  assign side_full = side_write - side_read == (SideBits + 1)'(SideBeats);
  assign full = to_side ? side_full : main_full;

  logic has_main, has_side, side_may;
  assign has_main = main_first != main_next;
  assign has_side = side_first != side_next;
  // Counts are compared by their difference, as they wrap.
  assign side_may = has_side && gone - side_item.behind < 16'h8000;

  logic advance;
  logic [10:0] left;  // double words that are not handed over, with those at the output
  assign advance = m_tvalid && m_tready;
  assign m_tvalid = state == StateMain || state == StateSide;
  assign m_tlast = left <= 11'd4;
  assign m_tkeep = first_words(m_tlast ? left[2:0] : 3'd4);

  logic [MainBits:0] main_read_next;
  logic [SideBits:0] side_read_next;
  assign main_read_next = main_read + {{MainBits{1'b0}}, advance && !from_side};
  assign side_read_next = side_read + {{SideBits{1'b0}}, advance && from_side};

  logic [127:0] main_data, side_data;
  ram_2p #(.Width(128), .Depth(MainBeats)) main_ram (
      .clk,
      .write(write && !to_side && !main_full),
      .waddr(main_write[MainBits-1:0]),
      .wdata(write_data),
      .raddr(main_read_next[MainBits-1:0]),
      .rdata(main_data)
  );
  ram_2p #(.Width(128), .Depth(SideBeats)) side_ram (
      .clk,
      .write(write && to_side && !side_full),
      .waddr(side_write[SideBits-1:0]),
      .wdata(write_data),
      .raddr(side_read_next[SideBits-1:0]),
      .rdata(side_data)
  );
  assign m_tdata = from_side ? side_data : main_data;

  assign reset_valid = state == StateReset && !side_may;
  assign empty = state == StateIdle && !has_main && !has_side;
  assign working = state != StateIdle || has_main || (side_may && m_np_ok);

  logic dropped;  // a non-posted request is dropped in this cycle: its reset has come
  assign dropped = state == StateReset && side_may;
  assign passed = (advance && m_tlast) || dropped;
  always_comb begin
    passed_lane = main_item.is_posted ? LanePosted : LaneCompletion;
    passed_units = main_item.units;
    if (from_side || dropped) begin
      passed_lane = LaneNonPosted;
      passed_units = side_item.units;
    end
  end

  always_ff @(posedge clk) begin
    main_read <= main_read_next;
    side_read <= side_read_next;
    unique case (state)
      StateIdle: begin
        from_side <= 1'b0;
        if (flush) begin
          main_read <= main_kept;
          side_read <= side_kept;
          main_first <= main_next;
          side_first <= side_next;
          gone <= came;
        end else if (side_may && m_np_ok) begin
          from_side <= 1'b1;
          left <= side_item.dwords;
          state <= StateSide;
        end else if (has_main) begin
          left <= main_item.dwords;
          state <= main_item.is_reset ? StateReset : StateMain;
        end
      end
      StateMain, StateSide:
      if (advance) begin
        left <= left - 11'd4;
        if (m_tlast) begin
          state <= StateIdle;
          if (from_side) side_first <= side_first + 1'b1;
          else begin
            main_first <= main_first + 1'b1;
            if (main_item.is_posted) gone <= gone + 16'd1;
          end
        end
      end
      StateReset:
      if (dropped) begin
        side_first <= side_first + 1'b1;
        side_read <= side_read + (SideBits + 1)'(beats_of(side_item.dwords));
      end else if (reset_ready || flush) begin
        main_first <= main_first + 1'b1;
        gone <= gone + 16'd1;
        state <= StateIdle;
      end
    endcase

    if (undo) begin
      main_write <= main_kept;
      side_write <= side_kept;
    end
    if (write && !full) begin
      if (to_side) side_write <= side_write + 1'b1;
      else main_write <= main_write + 1'b1;
    end
    if (commit || put_reset) begin
      if (put_reset || lane != LaneNonPosted) begin
        main_items[main_next[MainItemBits-1:0]] <= main_new;
        main_next <= main_next + 1'b1;
        main_kept <= main_write;
        if (put_reset || lane == LanePosted) came <= came + 16'd1;
      end else begin
        side_items[side_next[SideItemBits-1:0]] <= side_new;
        side_next <= side_next + 1'b1;
        side_kept <= side_write;
      end
    end

    if (rst) begin
      state <= StateIdle;
      {main_read, main_kept, main_write, main_first, main_next} <= '0;
      {side_read, side_kept, side_write, side_first, side_next} <= '0;
      {came, gone} <= '0;
    end
  end
endmodule
