// Writes frames behind the handshake: TLPs and resets in the order of their numbers, and between
// them credits, Pings and Pongs.
//
// Source: pure/tunnel/protocol.md, sections 2 and 4; `transmit` of the Rust engine. A frame begins
// when its TLP's first beat is there, and stops the stream while a later beat is missing. Numbers,
// acknowledgement and stamps are those of the moment of sending.
//
//            ____      ____      ____      ____      ____      ____
// clk     __/    \____/    \____/    \____/    \____/    \____/    \__
// waits   __/‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾
// load    __/‾‾‾‾‾‾‾‾‾\_____________________________________________
// push    ____________X header  X stamps  X beat 0  X beat 1  X digest
// sent    ____________________________________________________/‾‾‾‾‾
module tunnel_tx
  import tunnel_pkg::*;
(
    input  logic         clk,
    input  logic         enable,      // a connection is open; low drops a frame that has begun
    input  logic         hold,        // begin no further frame
    output logic         idle,
    input  logic [63:0]  now,
    input  logic         digests,
    input  logic         stamped,
    input  logic [31:0]  cursor,
    input  logic [31:0]  expected,
    input  logic [63:0]  received_at,
    output logic         heads,       // a header goes out, and acknowledges
    // Numbered frames.
    input  logic         waits,
    input  kept_t        kept,
    input  logic         upstream,    // a reset is a request, else it is done
    output logic         load,
    output logic         step,
    output logic         sent,
    input  logic         there,
    input  logic [127:0] data,
    // Other frames, each taken when it begins.
    input  logic         credit_due,
    input  logic         credit_along,// a Credit is worth sending behind a numbered frame
    input  limits_t      limits,
    output logic         credit_taken,
    input  logic         ping_due,
    output logic         ping_taken,
    input  logic         pong_due,
    input  logic [63:0]  pong_sent_at,
    input  logic [63:0]  pong_received_at,
    output logic         pong_taken,
    // The digest of the bytes that are pushed.
    output logic         digest_start,
    output logic         digest_add,
    input  logic [31:0]  digest,
    // Beats for the stream.
    output logic         push,
    output logic [127:0] push_data,
    output logic [2:0]   push_dwords,
    input  logic         push_ready
);
  typedef enum logic [2:0] {
    StateIdle,
    StateHeader,
    StateStamps,
    StateBody,
    StateDigest
  } state_t;

  state_t      state;
  logic [7:0]  kind;
  logic [10:0] dwords;  // of the body without stamps; then those that are left
  logic        numbered, after_numbered;
  logic [5:0][31:0] body;  // of a frame that is no TLP; the first number is body[0]

  typedef enum logic [2:0] {
    ChoiceNone,
    ChoiceKept,
    ChoiceCredit,
    ChoicePing,
    ChoicePong
  } choice_t;

  // Other frames have their turn after each numbered one.
  choice_t choice;
  logic    other;
  assign other = credit_due || ping_due || pong_due || (credit_along && after_numbered && !waits);
  always_comb begin
    choice = ChoiceNone;
    if (state == StateIdle && enable && !hold) begin
      if (waits && !(other && after_numbered)) choice = ChoiceKept;
      else if (credit_due) choice = ChoiceCredit;
      else if (ping_due) choice = ChoicePing;
      else if (pong_due) choice = ChoicePong;
      else if (other) choice = ChoiceCredit;
    end
  end
  assign load = choice == ChoiceKept;
  assign credit_taken = choice == ChoiceCredit;
  assign ping_taken = choice == ChoicePing;
  assign pong_taken = choice == ChoicePong;
  assign idle = state == StateIdle;

  logic stamps;
  assign stamps = kind == KindTlp && stamped;
  logic [15:0] length;
  assign length = {3'd0, dwords + (stamps ? 11'd4 : 11'd0), 2'd0};

  logic [2:0] width;
  assign width = dwords >= 11'd4 ? 3'd4 : dwords[2:0];

  logic last;  // the frame's last beat is pushed
  always_comb begin
    push = 1'b0;
    push_data = data;
    push_dwords = width;
    digest_start = 1'b0;
    digest_add = 1'b0;
    step = 1'b0;
    last = 1'b0;
    unique case (state)
      StateHeader: begin
        push = 1'b1;
        push_data = beat({kind, 7'd0, stamps, length}, cursor, expected, 32'd0);
        push_dwords = 3'd3;
        digest_start = push_ready;
        digest_add = push_ready;
      end
      StateStamps: begin
        push = 1'b1;
        push_data = beat(now[63:32], now[31:0], received_at[63:32], received_at[31:0]);
        push_dwords = 3'd4;
        digest_add = push_ready;
      end
      StateBody: begin
        push = kind != KindTlp || there;
        if (kind != KindTlp) push_data = beat(body[0], body[1], body[2], body[3]);
        digest_add = push && push_ready;
        step = kind == KindTlp && push && push_ready;
        last = push && push_ready && dwords <= 11'd4 && !digests;
      end
      StateDigest: begin
        push = 1'b1;
        push_data = beat(digest, 32'd0, 32'd0, 32'd0);
        push_dwords = 3'd1;
        last = push_ready;
      end
      default: ;
    endcase
  end
  assign heads = state == StateHeader && push_ready;
  assign sent = last && numbered;

  always_ff @(posedge clk) begin
    if (!enable) begin
      state <= StateIdle;
      after_numbered <= 1'b0;
    end else begin
      unique case (state)
        StateIdle: begin
          numbered <= choice == ChoiceKept;
          if (choice != ChoiceNone) state <= StateHeader;
          unique case (choice)
            ChoiceKept: begin
              kind <= kept.is_reset ? KindReset : KindTlp;
              dwords <= kept.is_reset ? 11'd1 : kept.dwords;
              body[0] <= upstream ? 32'd1 : 32'd2;
            end
            ChoiceCredit: begin
              kind <= KindCredit;
              dwords <= 11'd6;
              for (int lane = 0; lane < 3; lane++) begin
                body[2*lane] <= limits.lane[lane].headers;
                body[2*lane+1] <= limits.lane[lane].data;
              end
            end
            ChoicePing: begin
              kind <= KindPing;
              dwords <= 11'd2;
              {body[0], body[1]} <= now;
            end
            ChoicePong: begin
              kind <= KindPong;
              dwords <= 11'd6;
              {body[0], body[1]} <= pong_sent_at;
              {body[2], body[3]} <= pong_received_at;
              {body[4], body[5]} <= now;
            end
            default: ;
          endcase
        end
        StateHeader: if (push_ready) state <= stamps ? StateStamps : StateBody;
        StateStamps: if (push_ready) state <= StateBody;
        StateBody:
        if (push && push_ready) begin
          dwords <= dwords - {8'd0, width};
          for (int word = 0; word < 2; word++) body[word] <= body[4+word];
          if (dwords <= 11'd4) state <= digests ? StateDigest : StateIdle;
        end
        StateDigest: if (push_ready) state <= StateIdle;
        default: state <= StateIdle;
      endcase
      if (last) after_numbered <= numbered;
    end
  end
endmodule
