// Properties of streamer_outlet, for any memory and any receiver: offers stay until they are
// taken, the store has room for all that was asked for, and a chunk is delivered once all of its
// bursts have come.
module streamer_outlet_proof
  import streamer_pkg::*;
(
    input logic         clk,
    input logic         wants_start,
    input logic         wants_chunk,
    input slot_t        any_slot,
    input pages_t       any_pages,
    input logic         any_last,
    input logic         m_arready,
    input logic         wants_answer,
    input logic [127:0] m_rdata,
    input logic [1:0]   m_rresp,
    input logic         m_tready
);
  localparam int unsigned Bursts = 2;
  localparam int unsigned Depth = Bursts * BurstBeats;

  logic started = 1'b0;
  logic rst;
  always_ff @(posedge clk) started <= 1'b1;
  assign rst = !started;

  setup_t setup;
  assign setup = '0;

  logic         start, deliver, delivered, is_last, is_empty, out, fault;
  logic         m_arvalid, m_rvalid, m_rlast, m_tvalid, m_tlast;
  slot_t        slot;
  pages_t       pages;
  logic [63:0]  m_araddr;
  logic [127:0] m_tdata;

  streamer_outlet #(.Bursts(Bursts)) dut (.*);

  // A chunk stays until it is delivered; a start comes between chunks, with the stream at its end.
  logic chunk;
  assign deliver = chunk;
  assign start = started && wants_start && !chunk && is_empty && !m_tvalid;
  always_ff @(posedge clk) begin
    if (rst) chunk <= 1'b0;
    else if (delivered) chunk <= 1'b0;
    else if (!chunk && wants_chunk && !start) begin
      chunk <= 1'b1;
      slot <= any_slot;
      pages <= any_pages;
      is_last <= any_last;
    end
  end
  always_comb assume (any_pages >= 6'd1 && any_pages <= 6'd32);

  // The memory answers the requests that it got, in bursts.
  assign m_rvalid = started && wants_answer && dut.put != dut.reserved;
  assign m_rlast = dut.put[5:0] == 6'h3f;

  // The bursts of this chunk.
  logic [7:0] came;
  always_ff @(posedge clk) begin
    if (rst || start || delivered) came <= 8'd0;
    else if (m_rvalid && m_rlast) came <= came + 8'd1;
  end

  logic         ar_waits, t_waits, last_before;
  logic [63:0]  address_before;
  logic [127:0] data_before;
  logic [7:0]   held, promised;
  assign held = dut.put - dut.taken;
  assign promised = dut.reserved - dut.taken;
  always_ff @(posedge clk) begin
    ar_waits <= m_arvalid && !m_arready && !rst && !start;
    t_waits <= m_tvalid && !m_tready && !rst && !start;
    address_before <= m_araddr;
    data_before <= m_tdata;
    last_before <= m_tlast;
    if (started) begin
      if (ar_waits) address_holds: assert (m_arvalid && m_araddr == address_before);
      if (t_waits) begin
        stream_holds: assert (m_tvalid && m_tdata == data_before && m_tlast == last_before);
      end
      beats_find_room: assert (held <= promised && promised <= 8'(Depth));
      a_chunk_is_whole: assert (!delivered || came + 8'd1 == {pages, 2'b00});
      bursts_are_counted: assert (dut.came == came && came <= dut.asked);
      no_more_than_the_chunk: assert (dut.asked <= (chunk ? {pages, 2'b00} : 8'd0));
      promises_are_of_the_chunk: assert (dut.reserved - dut.put
                                         == 8'(14'(dut.asked - came) * 14'd64 - 14'(dut.put[5:0])));
      bursts_are_whole: assert (dut.reserved[5:0] == 6'd0);
      pages_are_few: assert (!chunk || (pages >= 6'd1 && pages <= 6'd32));
      shown_has_come: assert (dut.put_before - dut.taken <= held);
    end
  end

  logic unused;
  assign unused = &{1'b0, out, fault};
endmodule
