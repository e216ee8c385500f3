// From the stream to the stream buffer: beats become bursts, bursts become chunks in slots.
//
// A chunk that begins while no slot is free is lost whole, and so is one whose bytes come faster
// than the memory takes them: its beats are taken and counted, and its slot is free again. With
// `waits`, the stream waits in both cases, and nothing is lost.
//
// A burst has 64 beats (1 KiB). It is committed once it is whole, so a chunk that is lost in its
// middle leaves no beat behind. A place in the store is free again once the memory has answered.
//
//   clk          0    1    ..   63   64   65   66
//   s beats      b0   b1        b63  b0'
//   committed                        1
//   aw                               A
//   w                                     b0   b1
module streamer_intake
  import streamer_pkg::*;
#(
    parameter int unsigned Bursts = 8
) (
    input  logic         clk,
    input  logic         rst,
    input  setup_t       setup,
    input  logic         start,
    input  page_t        first_page,   // with `start`
    input  page_t        most_pages,   // with `start`: where the recording ends, at least 1
    input  logic         stop,

    input  logic         s_tvalid,
    output logic         s_tready,
    input  logic [127:0] s_tdata,
    input  logic [15:0]  s_tkeep,
    input  logic         s_tlast,

    input  logic         has_slot,
    input  slot_t        slot,         // the next slot to fill
    output logic         take,         // `slot` is in use from now on, for the chunk at `page`
    output logic         give_back,    // it is free again
    output logic         filled,       // the next chunk goes to the next slot
    output logic         close,        // the memory has a chunk, in the order of slots
    output page_t        page,
    output short_t       short_chunk,

    output logic [4:0]   in_bytes,     // that came in this cycle
    output bytes_t       lost_bytes,   // that are lost from this cycle on
    output logic         lost_chunk,   // the chunk at `page` is lost
    output logic         is_running,
    output logic         is_finished,  // all chunks are closed
    output logic         fault,        // the memory has answered with an error

    output logic         m_awvalid,
    input  logic         m_awready,
    output logic [63:0]  m_awaddr,
    output logic         m_wvalid,
    input  logic         m_wready,
    output logic [127:0] m_wdata,
    output logic         m_wlast,
    input  logic         m_bvalid,
    input  logic [1:0]   m_bresp
);
  localparam int unsigned Bits = $clog2(Bursts);
  typedef logic [Bits:0] place_t;

  // The stream.
  logic [12:0] at;            // beat of the chunk
  logic [12:0] chunk_end;     // last beat of a chunk
  logic        is_dropping, is_padding, closes_late;
  page_t       left;          // pages
  place_t      put, written, sent, answered;
  logic        has_burst, is_blocked, beat, drops, stores, ends, is_null, wraps, ends_page;
  logic [4:0]  count;
  logic        pads, pushes, commits, closes;
  bytes_t      came;          // bytes of the chunk with this beat

  assign chunk_end = 13'((14'd256 << setup.chunk_shift) - 14'd1);
  assign has_burst = (put - answered) != place_t'(Bursts);
  assign is_blocked = !is_dropping
                      && ((at == 13'd0 && !has_slot) || (at[5:0] == 6'd0 && !has_burst));
`ifdef MUTANT_STREAMER_READY_WHEN_FULL
  assign s_tready = is_running;
`else
  assign s_tready = is_running && !(setup.waits && is_blocked);
`endif
  assign beat = s_tvalid && s_tready;
  assign is_null = s_tlast && s_tkeep == 16'd0;
  always_comb begin
    count = 5'd0;
    for (int i = 0; i < 16; i++) count = count + {4'd0, s_tkeep[i] || !s_tlast};
  end
  assign drops = beat && !is_null && (is_dropping || is_blocked);
  assign stores = beat && !is_null && !is_dropping && !is_blocked;
  assign ends_page = at[7:0] == 8'hff;
  assign ends = beat && (s_tlast || (ends_page && left == 36'd1));
  assign wraps = at == chunk_end;
  assign came = {1'b0, at, 4'd0} + {13'd0, count};

  // Zeroes up to the end of a page follow the last byte.
  assign pads = is_padding && !(at[5:0] == 6'd0 && !has_burst);
  assign pushes = stores || pads;
  assign commits = pushes && at[5:0] == 6'h3f;
  assign closes = wraps || (ends_page && (pads || ends));

  assign take = stores && at == 13'd0;
`ifdef MUTANT_STREAMER_SLOT_KEPT
  assign give_back = 1'b0;
`else
  assign give_back = drops && !is_dropping && at != 13'd0;
`endif
  assign filled = (commits && closes) || (closes_late && put == answered);
  assign in_bytes = beat && !is_null ? count : 5'd0;
  assign lost_chunk = drops && !is_dropping;
`ifdef MUTANT_STREAMER_ABORT_UNCOUNTED
  assign lost_bytes = !drops ? 18'd0 : {13'd0, count};
`else
  assign lost_bytes = !drops ? 18'd0 : is_dropping ? {13'd0, count} : came;
`endif

  always_ff @(posedge clk) begin
    if (rst) begin
      is_running <= 1'b0;
      is_padding <= 1'b0;
      is_dropping <= 1'b0;
      closes_late <= 1'b0;
      short_chunk <= '0;
    end else if (start) begin
      is_running <= 1'b1;
      is_padding <= 1'b0;
      is_dropping <= 1'b0;
      closes_late <= 1'b0;
      short_chunk <= '0;
      at <= 13'd0;
      left <= most_pages;
      page <= first_page;
    end else begin
      if ((beat && !is_null) || pads) begin
        at <= wraps ? 13'd0 : at + 13'd1;
        is_dropping <= drops && !wraps;
        if (ends_page) left <= left - 36'd1;
        if (wraps) page <= page + {30'd0, chunk_pages(setup.chunk_shift)};
      end
      if (is_running && (ends || stop)) begin
        is_running <= 1'b0;
        if (!(beat && !is_null)) begin
          // The end lies behind a beat that has come before.
          if (at != 13'd0 && !is_dropping) begin
            is_padding <= at[7:0] != 8'd0;
            closes_late <= at[7:0] == 8'd0;
            short_chunk <= '{1'b1, slot, {1'b0, at[12:8]} + {5'd0, at[7:0] != 8'd0},
                             {1'b0, at, 4'd0}};
          end
        end else if (!drops && !wraps) begin
          // The end lies behind this beat.
          is_padding <= !ends_page;
          closes_late <= ends_page && !ends;
          short_chunk <= '{1'b1, slot, {1'b0, at[12:8]} + 6'd1, came};
        end else if (!drops && count != 5'd16) begin
          short_chunk <= '{1'b1, slot, {1'b0, at[12:8]} + 6'd1, came};
        end
      end
      if (pads && ends_page) is_padding <= 1'b0;
      if (closes_late && put == answered) closes_late <= 1'b0;
    end
  end

  // The store. Bytes behind the last one are zero.
  logic [127:0] kept;
  for (genvar i = 0; i < 16; i++) begin : g_byte
    assign kept[8*i +: 8] = s_tdata[8*i +: 8] & {8{!is_padding && (s_tkeep[i] || !s_tlast)}};
  end

  typedef struct packed {
    logic       closes;
    logic [6:0] burst;
    slot_t      slot;
  } commit_t;
  commit_t    commit[Bursts];
  commit_t    to_send, to_answer;
  logic [5:0] word;
  logic       w_passes;

  assign to_send = commit[sent[Bits-1:0]];
  assign to_answer = commit[answered[Bits-1:0]];
  assign m_awvalid = sent != put;
  assign m_awaddr = slot_address(setup.buffer, setup.chunk_shift, to_send.slot)
                    + {47'd0, to_send.burst, 10'd0};
  assign m_wvalid = written != sent;
  assign m_wlast = word == 6'h3f;
  assign w_passes = m_wvalid && m_wready;

  logic [Bits+5:0] read_at, read_next;
  assign read_at = {written[Bits-1:0], word};
  assign read_next = w_passes ? read_at + 1'b1 : read_at;
  ram_2p #(
      .Width(128),
      .Depth(Bursts * BurstBeats)
  ) store (
      .clk, .write(pushes), .waddr({put[Bits-1:0], at[5:0]}), .wdata(kept),
      .raddr(read_next), .rdata(m_wdata)
  );

  assign close = (m_bvalid && to_answer.closes) || (closes_late && put == answered);

  always_ff @(posedge clk) begin
    if (commits) commit[put[Bits-1:0]] <= '{closes, at[12:6], slot};
    if (rst) begin
      put <= '0;
      sent <= '0;
      written <= '0;
      answered <= '0;
      word <= 6'd0;
      fault <= 1'b0;
    end else begin
      if (commits) put <= put + 1'b1;
      if (m_awvalid && m_awready) sent <= sent + 1'b1;
      if (w_passes) word <= word + 6'd1;
      if (w_passes && m_wlast) written <= written + 1'b1;
      if (m_bvalid) answered <= answered + 1'b1;
      if (start) fault <= 1'b0;
      else if (m_bvalid && m_bresp[1]) fault <= 1'b1;
    end
  end

  assign is_finished = !is_running && !is_padding && !closes_late && put == answered;

  logic unused;
  assign unused = &{1'b0, setup, m_bresp[0], to_send.closes, to_answer.burst, to_answer.slot};
endmodule
