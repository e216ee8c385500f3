// The Streamer: a stream is recorded on an SSD, and played back, without a processor in between.
//
// Source: pure/record/registers.md, which has the registers; the Rust engine with the same rules is
// `record::RawRecorder`. README.md beside this file has the ports to connect and the setup.
module streamer
  import streamer_pkg::*;
#(
    parameter int unsigned Slots = 512,
    parameter int unsigned Entries = 64,
    parameter int unsigned Gaps = 512
) (
    input  logic         clk,
    input  logic         rst,

    // Registers.
    input  logic         s_reg_awvalid,
    output logic         s_reg_awready,
    input  logic [11:0]  s_reg_awaddr,
    input  logic         s_reg_wvalid,
    output logic         s_reg_wready,
    input  logic [31:0]  s_reg_wdata,
    input  logic [3:0]   s_reg_wstrb,
    output logic         s_reg_bvalid,
    input  logic         s_reg_bready,
    input  logic         s_reg_arvalid,
    output logic         s_reg_arready,
    input  logic [11:0]  s_reg_araddr,
    output logic         s_reg_rvalid,
    input  logic         s_reg_rready,
    output logic [31:0]  s_reg_rdata,

    // The stream to record.
    input  logic         s_tvalid,
    output logic         s_tready,
    input  logic [127:0] s_tdata,
    input  logic [15:0]  s_tkeep,
    input  logic         s_tlast,

    // The stream that is played back.
    output logic         m_tvalid,
    input  logic         m_tready,
    output logic [127:0] m_tdata,
    output logic         m_tlast,

    // The stream buffer's memory: bursts of 64 beats.
    output logic         m_mem_awvalid,
    input  logic         m_mem_awready,
    output logic [63:0]  m_mem_awaddr,
    output logic         m_mem_wvalid,
    input  logic         m_mem_wready,
    output logic [127:0] m_mem_wdata,
    output logic         m_mem_wlast,
    input  logic         m_mem_bvalid,
    input  logic [1:0]   m_mem_bresp,
    output logic         m_mem_arvalid,
    input  logic         m_mem_arready,
    output logic [63:0]  m_mem_araddr,
    input  logic         m_mem_rvalid,
    input  logic [127:0] m_mem_rdata,
    input  logic [1:0]   m_mem_rresp,
    input  logic         m_mem_rlast,

    // The SSD's window.
    input  logic         s_ssd_arvalid,
    output logic         s_ssd_arready,
    input  logic [22:0]  s_ssd_araddr,
    input  logic [7:0]   s_ssd_arlen,
    output logic         s_ssd_rvalid,
    input  logic         s_ssd_rready,
    output logic [127:0] s_ssd_rdata,
    output logic         s_ssd_rlast,
    input  logic         s_ssd_awvalid,
    output logic         s_ssd_awready,
    input  logic [22:0]  s_ssd_awaddr,
    input  logic         s_ssd_wvalid,
    output logic         s_ssd_wready,
    input  logic [127:0] s_ssd_wdata,
    input  logic [15:0]  s_ssd_wstrb,
    input  logic         s_ssd_wlast,
    output logic         s_ssd_bvalid,
    input  logic         s_ssd_bready,

    // Doorbells of the SSD.
    output logic         m_bell_awvalid,
    input  logic         m_bell_awready,
    output logic [63:0]  m_bell_awaddr,
    output logic         m_bell_wvalid,
    input  logic         m_bell_wready,
    output logic [31:0]  m_bell_wdata,
    input  logic         m_bell_bvalid,

    output logic         changed,     // for one cycle, whenever a state changes
    output logic         busy,
    output logic [63:0]  wake_at
);
  localparam int unsigned EntryBits = $clog2(Entries);
  localparam int unsigned GapBits = $clog2(Gaps);

  setup_t             setup;
  page_t              media, first_page, most_pages;
  logic               is_clearing, is_busy, is_starting, is_replay, start, has_failed;
  logic [1:0]         starts, stops;
  logic [1:0][63:0]   first, maximum, chunks_max;
  state_t             record_state, replay_state;
  logic [1:0][2:0]    state;
  logic [1:0][47:0]   bytes, stored, lost, last_address;
  logic [1:0][31:0]   fill, high_water;
  logic [31:0]        gaps;
  logic [GapBits-1:0] gap_index;
  page_t              gap_page;
  logic [26:0]        gap_chunks;
  logic               gap_behind, gaps_are_busy;

  assign state = {replay_state, record_state};
  streamer_registers #(
      .GapBits(GapBits)
  ) registers (
      .clk, .rst,
      .s_awvalid(s_reg_awvalid), .s_awready(s_reg_awready), .s_awaddr(s_reg_awaddr),
      .s_wvalid(s_reg_wvalid), .s_wready(s_reg_wready), .s_wdata(s_reg_wdata),
      .s_wstrb(s_reg_wstrb), .s_bvalid(s_reg_bvalid), .s_bready(s_reg_bready),
      .s_arvalid(s_reg_arvalid), .s_arready(s_reg_arready), .s_araddr(s_reg_araddr),
      .s_rvalid(s_reg_rvalid), .s_rready(s_reg_rready), .s_rdata(s_reg_rdata),
      .setup, .media, .is_clearing, .is_busy, .is_starting, .starts, .stops,
      .first, .maximum, .chunks_max, .state, .bytes, .stored, .lost, .fill, .high_water,
      .last_address,
      .gaps, .gap_index, .gap_page, .gap_chunks, .gap_behind
  );

  // Slots and their chunks.
  logic    has_slot, is_idle, retire, retire_lost, retire_full, deliver, delivered, arrive;
  slot_t   slot, tail, arrived, last_slot;
  page_t   tail_page, intake_page, ask_page;
  logic    intake_take, intake_filled, intake_close, give_back, ask;
  logic    flush, flushed, flush_failed, last_valid;
  short_t  intake_short, replay_short, short_chunk;
  logic    intake_runs, intake_is_finished, stop_intake, intake_fault, outlet_fault;
  logic    outlet_is_empty, out, lost_chunk;
  bytes_t  lost_bytes;
  logic [4:0] in_bytes;

  streamer_control control (
      .clk, .rst, .is_enabled(setup.enable && !is_clearing), .chunk_shift(setup.chunk_shift),
      .media, .starts, .stops, .first, .maximum, .chunks_max,
      .record_state, .replay_state, .is_busy, .is_starting, .is_replay, .start,
      .first_page, .most_pages, .stop_intake,
      .intake_runs, .intake_is_finished, .fault(is_replay ? outlet_fault : intake_fault),
      .outlet_is_empty, .has_slot, .slot, .is_idle, .retire, .retire_lost, .retire_full,
      .flush, .flushed, .flush_failed, .ask, .page(ask_page), .short_chunk(replay_short),
      .last_valid, .last_slot, .has_failed
  );

  streamer_intake intake (
      .clk, .rst, .setup, .start(start && !is_replay), .first_page, .most_pages,
      .stop(stop_intake), .s_tvalid, .s_tready, .s_tdata, .s_tkeep, .s_tlast,
      .has_slot, .slot, .take(intake_take), .give_back, .filled(intake_filled),
      .close(intake_close), .page(intake_page), .short_chunk(intake_short),
      .in_bytes, .lost_bytes, .lost_chunk, .is_running(intake_runs),
      .is_finished(intake_is_finished), .fault(intake_fault),
      .m_awvalid(m_mem_awvalid), .m_awready(m_mem_awready), .m_awaddr(m_mem_awaddr),
      .m_wvalid(m_mem_wvalid), .m_wready(m_mem_wready), .m_wdata(m_mem_wdata),
      .m_wlast(m_mem_wlast), .m_bvalid(m_mem_bvalid), .m_bresp(m_mem_bresp)
  );

  pages_t tail_pages;
  bytes_t tail_bytes, arrived_bytes, chunk;
  logic   tail_is_short, arrived_is_short;
  assign short_chunk = is_replay ? replay_short : intake_short;
  assign chunk = {chunk_pages(setup.chunk_shift), 12'd0};
  assign tail_is_short = short_chunk.valid && short_chunk.slot == tail;
  assign arrived_is_short = short_chunk.valid && short_chunk.slot == arrived;
  assign tail_pages = tail_is_short ? short_chunk.pages : chunk_pages(setup.chunk_shift);
  assign tail_bytes = tail_is_short ? short_chunk.bytes : chunk;
  assign arrived_bytes = arrived_is_short ? short_chunk.bytes : chunk;

  streamer_outlet outlet (
      .clk, .rst, .setup, .start(start && is_replay), .deliver, .slot(tail), .pages(tail_pages),
      .is_last(last_valid && last_slot == tail), .delivered, .is_empty(outlet_is_empty), .out,
      .fault(outlet_fault),
      .m_arvalid(m_mem_arvalid), .m_arready(m_mem_arready), .m_araddr(m_mem_araddr),
      .m_rvalid(m_mem_rvalid), .m_rdata(m_mem_rdata), .m_rresp(m_mem_rresp),
      .m_rlast(m_mem_rlast), .m_tvalid, .m_tready, .m_tdata, .m_tlast
  );

  // Commands, and the SSD's view of them.
  logic [EntryBits-1:0] entry, completion;
  command_t             entry_command;
  slot_t                entry_slot;
  page_t                entry_page;
  logic [31:0]          completed;
  logic                 clear_entry, window_is_busy;
  logic [10:0]          outstanding;

  streamer_queue #(
      .Slots(Slots),
      .Entries(Entries)
  ) queue (
      .clk, .rst, .setup, .start, .is_replay, .is_clearing,
      .has_slot, .slot, .take(intake_take || ask), .give_back,
      .filled(intake_filled || ask), .close(intake_close || ask),
      .page(is_replay ? ask_page : intake_page), .is_idle,
      .retire, .retire_lost, .retire_full, .tail, .tail_page, .deliver, .delivered,
      .skip(has_failed), .arrive, .arrived, .flush, .flushed, .flush_failed,
      .entry, .entry_command, .entry_slot, .entry_page, .completion, .completed, .clear_entry,
      .bell_awvalid(m_bell_awvalid), .bell_awready(m_bell_awready),
      .bell_awaddr(m_bell_awaddr), .bell_wvalid(m_bell_wvalid), .bell_wready(m_bell_wready),
      .bell_wdata(m_bell_wdata), .bell_bvalid(m_bell_bvalid), .outstanding
  );

  streamer_window #(
      .Entries(Entries)
  ) window (
      .clk, .rst, .setup, .is_replay, .short_chunk,
      .entry, .entry_command, .entry_slot, .entry_page, .completion, .completed, .clear_entry,
      .s_arvalid(s_ssd_arvalid), .s_arready(s_ssd_arready), .s_araddr(s_ssd_araddr),
      .s_arlen(s_ssd_arlen), .s_rvalid(s_ssd_rvalid), .s_rready(s_ssd_rready),
      .s_rdata(s_ssd_rdata), .s_rlast(s_ssd_rlast),
      .s_awvalid(s_ssd_awvalid), .s_awready(s_ssd_awready), .s_awaddr(s_ssd_awaddr),
      .s_wvalid(s_ssd_wvalid), .s_wready(s_ssd_wready), .s_wdata(s_ssd_wdata),
      .s_wstrb(s_ssd_wstrb), .s_wlast(s_ssd_wlast), .s_bvalid(s_ssd_bvalid),
      .s_bready(s_ssd_bready), .is_busy(window_is_busy)
  );

  // Accounts.
  logic        is_stored, is_lost;
  logic [18:0] lost_now;
  logic [47:0] tail_end;
  assign is_stored = retire && !retire_lost;
  assign is_lost = retire && retire_lost;
`ifdef MUTANT_STREAMER_LOSS_UNCOUNTED
  assign lost_now = is_lost ? {1'b0, tail_bytes} : 19'd0;
`else
  assign lost_now = {1'b0, lost_bytes} + (is_lost ? {1'b0, tail_bytes} : 19'd0);
`endif
  assign tail_end = {tail_page, 12'd0} + {30'd0, tail_bytes};

  streamer_account record_account (
      .clk, .rst, .start(start && !is_replay), .first_address({first_page, 12'd0}),
      .add_bytes({13'd0, in_bytes}),
      .add_stored(is_stored && !is_replay ? tail_bytes : 18'd0),
      .add_lost(is_replay ? 19'd0 : lost_now),
      .add_fill({13'd0, in_bytes}),
      .sub_fill(is_replay ? 19'd0 : {1'b0, lost_bytes} + (retire ? {1'b0, tail_bytes} : 19'd0)),
      .ends(is_stored && !is_replay), .end_address(tail_end),
      .bytes(bytes[0]), .stored(stored[0]), .lost(lost[0]), .fill(fill[0]),
      .high_water(high_water[0]), .last_address(last_address[0])
  );

  streamer_account replay_account (
      .clk, .rst, .start(start && is_replay), .first_address({first_page, 12'd0}),
      .add_bytes(out ? 18'd16 : 18'd0), .add_stored(18'd0), .add_lost(19'd0),
      .add_fill(arrive && is_replay ? arrived_bytes : 18'd0),
      .sub_fill(out ? 19'd16 : 19'd0),
      .ends(out), .end_address(last_address[1] + 48'd16),
      .bytes(bytes[1]), .stored(stored[1]), .lost(lost[1]), .fill(fill[1]),
      .high_water(high_water[1]), .last_address(last_address[1])
  );

  streamer_gaps #(
      .Gaps(Gaps)
  ) log (
      .clk, .rst, .start(start && !is_replay), .chunk(chunk_pages(setup.chunk_shift)),
      .lost_before(lost_chunk), .page_before(intake_page),
      .lost_behind(is_lost && !is_replay), .page_behind(tail_page),
      .count(gaps), .is_busy(gaps_are_busy),
      .index(gap_index), .gap_page, .gap_chunks, .gap_behind
  );

  logic [1:0][2:0] was;
  always_ff @(posedge clk) begin
    was <= rst ? '0 : state;
    changed <= !rst && was != state;
  end

  assign busy = rst || is_busy || is_clearing || gaps_are_busy || window_is_busy
                || outstanding != 11'd0 || m_bell_awvalid || m_bell_wvalid || m_tvalid
                || s_reg_awvalid || s_reg_bvalid || s_reg_arvalid || s_reg_rvalid
                || s_ssd_arvalid || s_ssd_awvalid || was != state || changed;
  assign wake_at = '1;
endmodule
