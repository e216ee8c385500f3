// From the stream buffer to the stream: the chunk of a slot, burst after burst.
//
// A burst is asked for once the store has room for all of it, so the memory never waits for the
// stream. The next chunk is taken up when all bursts of this one have come.
module streamer_outlet
  import streamer_pkg::*;
#(
    parameter int unsigned Bursts = 8
) (
    input  logic         clk,
    input  logic         rst,
    input  setup_t       setup,
    input  logic         start,

    input  logic         deliver,       // stays until `delivered`
    input  slot_t        slot,
    input  pages_t       pages,
    input  logic         is_last,       // the stream ends behind this chunk
    output logic         delivered,
    output logic         is_empty,
    output logic         out,           // a beat has left
    output logic         fault,         // the memory has answered with an error

    output logic         m_arvalid,
    input  logic         m_arready,
    output logic [63:0]  m_araddr,
    input  logic         m_rvalid,
    input  logic [127:0] m_rdata,
    input  logic [1:0]   m_rresp,
    input  logic         m_rlast,

    output logic         m_tvalid,
    input  logic         m_tready,
    output logic [127:0] m_tdata,
    output logic         m_tlast
);
  localparam int unsigned Bits = $clog2(Bursts);
  typedef logic [Bits+6:0] beat_t;  // counts beats, with a lap

  logic [7:0] asked, came, wanted;  // bursts of this chunk
  beat_t      put, taken, reserved;
  logic       passes, has_room, is_whole;

  assign wanted = {pages, 2'b00};
`ifdef MUTANT_STREAMER_READ_AHEAD
  assign has_room = (reserved - taken) <= beat_t'(Bursts * BurstBeats);
`else
  assign has_room = (reserved - taken) <= beat_t'((Bursts - 1) * BurstBeats);
`endif
  assign m_arvalid = deliver && asked != wanted && has_room;
  assign m_araddr = slot_address(setup.buffer, setup.chunk_shift, slot) + {46'd0, asked, 10'd0};
  assign is_whole = m_rvalid && m_rlast && came + 8'd1 == wanted;
  assign delivered = is_whole;
  assign is_empty = put == taken;
  assign passes = m_tvalid && m_tready;
  assign out = passes;

  always_ff @(posedge clk) begin
    if (rst || start) begin
      asked <= 8'd0;
      came <= 8'd0;
      put <= '0;
      taken <= '0;
      reserved <= '0;
      fault <= 1'b0;
    end else begin
      if (m_arvalid && m_arready) begin
        asked <= asked + 8'd1;
        reserved <= reserved + beat_t'(BurstBeats);
      end
      if (m_rvalid) put <= put + 1'b1;
      if (m_rvalid && m_rlast) came <= came + 8'd1;
      if (is_whole) begin
        asked <= 8'd0;
        came <= 8'd0;
      end
      if (passes) taken <= taken + 1'b1;
      if (m_rvalid && m_rresp[1]) fault <= 1'b1;
    end
  end

  // A word can be read two cycles after it came.
  logic [128:0] shown;
  beat_t        taken_next, put_before;
  assign taken_next = passes ? taken + 1'b1 : taken;
  ram_2p #(
      .Width(129),
      .Depth(Bursts * BurstBeats)
  ) store (
      .clk, .write(m_rvalid), .waddr(put[Bits+5:0]), .wdata({is_whole && is_last, m_rdata}),
      .raddr(taken_next[Bits+5:0]), .rdata(shown)
  );
  always_ff @(posedge clk) put_before <= rst || start ? '0 : put;
  assign m_tvalid = put_before != taken;
  assign m_tdata = shown[127:0];
  assign m_tlast = shown[128];

  logic unused;
  assign unused = &{1'b0, setup, m_rresp[0], taken_next[Bits+6]};
endmodule
