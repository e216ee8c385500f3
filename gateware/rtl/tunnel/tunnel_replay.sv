// Keeps numbered frames until the peer acknowledges them.
//
// Source: pure/tunnel/protocol.md, section 4; `Link` of the Rust engine. The transmitter reads
// every frame from here, so a frame that is sent again takes the way of a new one. Numbers are
// those of the protocol, modulo 2^32: frames `oldest` to `next` - 1 are kept, and `cursor` is the
// next one to be sent on this connection.
//
//             ____      ____      ____      ____
// clk      __/    \____/    \____/    \____/    \__
// put      __/‾‾‾‾‾‾‾‾‾\___________________________
// write    __/‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾\_________________
// next     X n         X n + 1
// there    ____________________/‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾   the frame's first beat can be read
// data                         X beat 0
module tunnel_replay
  import tunnel_pkg::*;
#(
    parameter int unsigned Frames = 128,  // a power of two
    parameter int unsigned Beats  = 4096  // of 16 bytes; a power of two, at most 32768
) (
    input  logic         clk,
    input  logic         link_start,    // numbers begin with 0
    input  logic         resume,        // the peer expects `acknowledge`: send again from there
    input  logic         forget,        // frames before `acknowledge` have arrived
    input  logic [31:0]  acknowledge,
    // Numbering.
    input  logic         put,
    input  kept_t        put_kept,
    input  logic         write,
    input  logic [127:0] write_data,
    output logic         has_place,
    output logic [15:0]  free_beats,
    output logic [31:0]  oldest,
    output logic [31:0]  next,
    output logic [31:0]  cursor,
    // The frame at `cursor`.
    output logic         waits,         // there is one
    output kept_t        kept,
    input  logic         load,          // begin to read it
    input  logic         step,          // `data` was used
    input  logic         sent,          // the frame is on its way
    output logic         there,         // `data` is the frame's next beat
    output logic [127:0] data
);
  localparam int unsigned Bits = $clog2(Beats);
  localparam int unsigned FrameBits = $clog2(Frames);

  kept_t         items[Frames];
  logic [Bits:0] starts[Frames];  // where each frame begins in the memory
  logic [Bits:0] head, head_before, tail, place, place_next, used;
  assign kept = items[cursor[FrameBits-1:0]];
  assign used = head - tail;
  assign waits = cursor != next;
`ifdef MUTANT_TUNNEL_ONE_FRAME_MORE
  assign has_place = next - oldest <= 32'(Frames);
`else
  assign has_place = next - oldest < 32'(Frames);
`endif
  assign free_beats = 16'(Beats) - 16'(used);

  // A beat can be read a cycle after it was written.
  assign there = place != head_before;
  always_comb begin
    place_next = place;
    if (load) place_next = starts[cursor[FrameBits-1:0]];
    else if (step) place_next = place + 1'b1;
  end

  ram_2p #(.Width(128), .Depth(Beats)) ram (
      .clk,
      .write,
      .waddr(head[Bits-1:0]),
      .wdata(write_data),
      .raddr(place_next[Bits-1:0]),
      .rdata(data)
  );

  always_ff @(posedge clk) begin
    place <= place_next;
    head_before <= head;
    if (write) head <= head + 1'b1;
    if (put) begin
      items[next[FrameBits-1:0]] <= put_kept;
      starts[next[FrameBits-1:0]] <= head;
      next <= next + 32'd1;
    end
    if (sent) cursor <= cursor + 32'd1;
    if (forget || resume) begin
      oldest <= acknowledge;
      // The place of the frame that is now the oldest, or of the next one if all have arrived.
      tail <= acknowledge == next ? head : starts[acknowledge[FrameBits-1:0]];
    end
`ifndef MUTANT_TUNNEL_NOT_SENT_AGAIN
    if (resume) cursor <= acknowledge;
`endif
    if (link_start) begin
      {oldest, next, cursor} <= '0;
      {head, head_before, tail, place} <= '0;
    end
  end
endmodule
