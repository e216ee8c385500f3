// Cuts the stream into frames behind the handshake, checks their digests, and hands on their
// contents.
//
// Source: pure/tunnel/protocol.md, sections 2 to 5; `receive` of the Rust engine. A TLP goes into
// the store while it comes in, and counts only when its digest is right: `commit` or `undo` follows
// the last beat. The session checks the rest while `frame` is high, and answers with `accept`.
//
//           ____      ____      ____      ____      ____      ____
// clk    __/    \____/    \____/    \____/    \____/    \____/    \__
// take   X 3       X 4       X 4       X 1       X 1       X 0      X   header, stamps, TLP, digest
// write  ____________________/‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾\__________________
// frame  __________________________________________________/‾‾‾‾‾‾‾‾‾
// commit __________________________________________________/‾‾‾‾‾‾‾‾‾
module tunnel_rx
  import tunnel_pkg::*;
#(
    parameter int unsigned MaxPayload = 256  // bytes
) (
    input  logic             clk,
    input  logic             enable,     // low begins afresh
    input  logic             digests,
    input  logic [3:0][31:0] words,
    input  logic [3:0]       count,
    output logic [2:0]       take,
    output logic             begun,      // a frame is incomplete
    // The digest of the bytes that are taken.
    output logic             digest_start,
    output logic [2:0]       digest_dwords,
    input  logic [31:0]      digest,
    // The store of TLPs.
    output logic             write,
    output lane_t            write_lane,
    output logic [127:0]     write_data,
    input  logic             store_full, // the beat would not fit: it is lost
    output logic             commit,
    output logic             undo,
    output lane_t            lane,       // of the TLP, and its size
    output logic [10:0]      dwords,
    output logic [8:0]       units,
    // A whole frame with the right digest.
    output logic             frame,
    output logic [7:0]       kind,
    output logic [15:0]      length,     // of the body, in bytes
    output logic [31:0]      sequence_,
    output logic [31:0]      acknowledge,
    output logic [5:0][31:0] body,       // of a frame that is no TLP; the first number is body[0]
    output logic             well_formed,// a TLP is as long as its header says, and short enough
    output logic             overdrawn,  // a TLP had no room
    input  logic             accept,     // a TLP is to be kept
    // The stream is damaged, or no stream of frames.
    output logic             bad
);
  localparam logic [10:0] PayloadWords = 11'(MaxPayload / 4);

  typedef enum logic [2:0] {
    StateHeader,
    StateStamps,
    StateBody,
    StateDigest,
    StateFrame,
    StateBad
  } state_t;

  state_t      state;
  logic [10:0] left;      // double words of the body that are still to come
  logic [10:0] tlp_words; // of a TLP frame
  logic        first;     // no beat of the TLP has come
  logic [2:0]  at;        // in `body`

  // The header, if it is there.
  logic [31:0] head;
  logic [15:0] head_length;
  logic        head_stamped;
  logic        head_fits;
  assign head = swap(words[0]);
  assign head_length = head[15:0];
  assign head_stamped = head[31:24] == KindTlp && head[23:16] == 8'd1;
  always_comb begin
    unique case (head[31:24])
      KindRefuse, KindClose: head_fits = head_length >= 16'd4 && head_length <= 16'd260;
      KindTlp: begin
        if (head_stamped) head_fits = head_length >= 16'd28 && head_length <= 16'd4152;
        else head_fits = head_length >= 16'd12 && head_length <= 16'd4136;
      end
      KindReset: head_fits = head_length == 16'd4;
      KindCredit, KindPong: head_fits = head_length == 16'd24;
      KindPing: head_fits = head_length == 16'd8;
      // A circuit asks for no frame of another kind.
      default: head_fits = 1'b0;
    endcase
    if (head_length[1:0] != 2'd0) head_fits = 1'b0;
    if (head[23:16] != 8'd0 && !head_stamped) head_fits = 1'b0;
  end

  logic [2:0] step;  // double words of the body that the next beat takes
  logic       has_digest;
  assign step = left >= 11'd4 ? 3'd4 : left[2:0];
  assign has_digest = digests && kind != KindRefuse;

  always_comb begin
    take = 3'd0;
    digest_start = 1'b0;
    digest_dwords = 3'd0;
    unique case (state)
      StateHeader: if (enable && count >= 4'd3) begin
        take = 3'd3;
        digest_start = 1'b1;
        digest_dwords = 3'd3;
      end
      StateStamps: if (count >= 4'd4) begin
        take = 3'd4;
        digest_dwords = 3'd4;
      end
      StateBody: if (count >= {1'b0, step}) begin
        take = step;
        digest_dwords = step;
      end
      StateDigest: if (count != 4'd0) take = 3'd1;
      default: ;
    endcase
  end

  meter_t found, meter;
  assign lane = meter.lane;
  assign dwords = meter.dwords;
  assign units = meter.units;
  assign found = measure(write_data);
  assign write_data = words;
  assign write = state == StateBody && kind == KindTlp && take != 3'd0;
  assign write_lane = first ? found.lane : meter.lane;
  assign frame = state == StateFrame;
  assign commit = frame && accept;
  assign undo = (frame && !accept) || state == StateBad || !enable;
  assign bad = state == StateBad;
  assign begun = state != StateHeader;
  assign well_formed = meter.known && meter.dwords == tlp_words && meter.payload <= PayloadWords;

  always_ff @(posedge clk) begin
    if (!enable) begin
      state <= StateHeader;
      left <= 11'd0;
    end else begin
      unique case (state)
        StateHeader: if (take != 3'd0) begin
          kind <= head[31:24];
          length <= head_length;
          sequence_ <= swap(words[1]);
          acknowledge <= swap(words[2]);
          left <= head_length[12:2];
          tlp_words <= head_length[12:2] - (head_stamped ? 11'd4 : 11'd0);
          first <= 1'b1;
          at <= 3'd0;
          overdrawn <= 1'b0;
          state <= head_stamped ? StateStamps : StateBody;
          if (!head_fits) state <= StateBad;
        end
        StateStamps: if (take != 3'd0) begin
          left <= left - 11'd4;
          state <= StateBody;
        end
        StateBody: if (take != 3'd0) begin
          left <= left - {8'd0, step};
          first <= 1'b0;
          if (first) meter <= found;
          if (write && store_full) overdrawn <= 1'b1;
          at <= 3'd4;
          for (int word = 0; word < 4; word++) begin
            if (at == 3'd0) body[word] <= swap(words[word]);
            else if (at == 3'd4 && word < 2 && left <= 11'd2) body[4+word] <= swap(words[word]);
          end
          if (left == {8'd0, step}) state <= has_digest ? StateDigest : StateFrame;
        end
        StateDigest: if (take != 3'd0) begin
`ifdef MUTANT_TUNNEL_DIGEST_IGNORED
          state <= swap(words[0]) == digest ? StateFrame : StateFrame;
`else
          state <= swap(words[0]) == digest ? StateFrame : StateBad;
`endif
        end
        StateFrame: state <= StateHeader;
        default: ;
      endcase
    end
  end
endmodule
