// Properties of streamer_intake, for any stream, any memory and any SSD: no byte that came is
// forgotten. It is in a chunk that was filled, in the chunk that is being filled, or counted as
// lost. Offers to the memory stay until they are taken.
module streamer_intake_proof
  import streamer_pkg::*;
(
    input logic         clk,
    input logic         waits,
    input logic [2:0]   chunk_shift,
    input logic         wants_start,
    input page_t        most_pages,
    input logic         stop,
    input logic         s_tvalid,
    input logic [127:0] s_tdata,
    input logic [4:0]   s_count,
    input logic         s_tlast,
    input logic         has_slot,
    input slot_t        slot,
    input logic         m_awready,
    input logic         m_wready,
    input logic         wants_answer,
    input logic [1:0]   m_bresp
);
  localparam int unsigned Bursts = 2;

  logic started = 1'b0;
  logic rst;
  always_ff @(posedge clk) started <= 1'b1;
  assign rst = !started;

  setup_t setup;
  logic   was_waits;
  logic [2:0] shift;
  always_ff @(posedge clk) begin
    was_waits <= was_waits;
    shift <= shift;
  end
  always_comb begin
    setup = '0;
    setup.waits = was_waits;
    setup.chunk_shift = shift;
    assume (shift >= 3'd2 && shift <= 3'd5);
  end

  logic         start, s_tready, take, give_back, filled, close, lost_chunk;
  logic         is_running, is_finished, fault;
  logic         m_awvalid, m_wvalid, m_wlast, m_bvalid;
  logic [15:0]  s_tkeep;
  logic [63:0]  m_awaddr;
  logic [127:0] m_wdata;
  page_t        page, first_page;
  short_t       short_chunk;
  logic [4:0]   in_bytes;
  bytes_t       lost_bytes;

  assign first_page = 36'd0;
  assign start = started && wants_start && is_finished;
  assign s_tkeep = 16'((17'd1 << s_count) - 17'd1);
  // The memory answers the bursts that it has.
  assign m_bvalid = started && wants_answer && dut.written != dut.answered;
  always_comb begin
    assume (s_count <= 5'd16);
    assume (!start || most_pages != 36'd0);
  end

  streamer_intake #(.Bursts(Bursts)) dut (.*);

  // Slots: one that is not there in one cycle can come; it does not go while nothing takes it.
  logic had_slot, may_lose_slot;
  always_ff @(posedge clk) begin
    had_slot <= has_slot;
    may_lose_slot <= take;
  end
  always_comb assume (!started || !had_slot || may_lose_slot || has_slot);

  // The account of bytes.
  logic   ends_short, is_ending;
  bytes_t end_bytes;
  logic [47:0] came, lost, kept, filling;
  always_ff @(posedge clk) begin
    if (rst || start) begin
      came <= 48'd0;
      lost <= 48'd0;
      kept <= 48'd0;
    end else begin
      came <= came + {43'd0, in_bytes};
      lost <= lost + {30'd0, lost_bytes};
      if (filled) begin
        kept <= kept + {30'd0, ends_short ? end_bytes : {chunk_pages(shift), 12'd0}};
      end
    end
  end

  // The chunk that is filled now is the short one if it is the last.
  assign is_ending = dut.is_padding || dut.closes_late;
  always_comb begin
    ends_short = 1'b0;
    end_bytes = short_chunk.bytes;
    if (is_ending) ends_short = 1'b1;
    else if (filled && dut.stores && dut.ends && !(dut.wraps && dut.count == 5'd16)) begin
      ends_short = 1'b1;
      end_bytes = dut.came;
    end
  end

  assign filling = dut.is_dropping ? 48'd0
                   : is_ending ? {30'd0, short_chunk.bytes}
                   : is_running ? {31'd0, dut.at, 4'd0} : 48'd0;

  always_ff @(posedge clk) begin
    if (started) begin
      no_byte_is_forgotten: assert (came == lost + kept + filling);
      a_lost_chunk_is_counted: assert (!lost_chunk || lost_bytes != 18'd0);
      a_slot_comes_back: assert (!give_back || !filled);
      nothing_is_lost_that_waits: assert (!setup.waits || lost_bytes == 18'd0);
    end
  end

  // The memory's ports.
  logic         aw_waits, w_waits, last_before;
  logic [63:0]  address_before;
  logic [127:0] data_before;
  always_ff @(posedge clk) begin
    aw_waits <= m_awvalid && !m_awready && !rst;
    w_waits <= m_wvalid && !m_wready && !rst;
    address_before <= m_awaddr;
    data_before <= m_wdata;
    last_before <= m_wlast;
    if (started) begin
      if (aw_waits) address_holds: assert (m_awvalid && m_awaddr == address_before);
      if (w_waits) begin
        data_holds: assert (m_wvalid && m_wdata == data_before && m_wlast == last_before);
      end
    end
  end

  // Facts that induction needs: pointers follow each other, and a burst that fills has a place.
  logic [1:0] in_store, unsent, unwritten;
  assign in_store = dut.put - dut.answered;
  assign unsent = dut.put - dut.sent;
  assign unwritten = dut.put - dut.written;
  always_ff @(posedge clk) begin
    if (started) begin
      bursts_fit: assert (in_store <= 2'(Bursts));
      bursts_are_sent_in_order: assert (unsent <= unwritten && unwritten <= in_store);
      a_burst_has_a_place: assert (dut.at[5:0] == 6'd0 || dut.is_dropping
                                   || !(is_running || dut.is_padding) || in_store < 2'(Bursts));
      only_one_end: assert (!(dut.is_padding && dut.closes_late));
      an_end_is_one: assert (!(is_running && is_ending));
      a_waiting_stream_drops_nothing: assert (!setup.waits || !dut.is_dropping);
      padding_keeps: assert (!is_ending || !dut.is_dropping);
      beats_are_of_the_chunk: assert (!(is_running || dut.is_padding)
                                      || dut.at <= dut.chunk_end);
      zeroes_end_a_page: assert (!dut.is_padding || dut.at[7:0] != 8'd0);
      short_is_shown: assert (!is_ending || short_chunk.valid);
      a_dropped_chunk_has_begun: assert (!is_running || !dut.is_dropping || dut.at != 13'd0);
    end
  end

  logic unused;
  assign unused = &{1'b0, waits, chunk_shift, take, close, page, fault};
endmodule
