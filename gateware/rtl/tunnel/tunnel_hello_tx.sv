// Writes a Hello, a Welcome, a Refuse or a Close, a double word a cycle.
//
// Source: pure/tunnel/protocol.md, sections 2.1 and 2.2; `greet`, `transmit` and `transmit_last` of
// the Rust engine. The frame is made twice: the first pass computes its check or digest, the second
// one sends it. So its fields must not change while `busy`.
//
//           ____      ____      ____           ____      ____      ____
// clk    __/    \____/    \____/    \__  ...  /    \____/    \____/    \__
// start  ______/‾‾‾‾‾‾‾‾‾\______________________________________________
// busy   ________________/‾‾‾‾‾‾‾‾‾‾‾‾‾  ...  ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾\______
// valid  ______________________________  ...  /‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾\______
// word                                        X 0       X 1       X
module tunnel_hello_tx
  import tunnel_pkg::*;
(
    input  logic         clk,
    input  logic         drop,
    input  logic         start,
    output logic         busy,
    // The frame.
    input  logic [7:0]   kind,
    input  logic [15:0]  code,        // of a Refuse or Close
    input  greeting_t    greeting,    // of a Hello or Welcome; its numbers, of a Close as well
    input  logic [127:0] name,        // the first byte in bits 127:120
    input  logic [4:0]   name_length, // bytes, 0 to 16
    input  logic         digests,     // a Close has a digest
    // The digest of the bytes that are made.
    output logic         digest_start,
    output logic         digest_add,
    output logic [31:0]  digest_word,
    input  logic [31:0]  digest,
    // The double words, to be sent.
    output logic         valid,
    output logic [31:0]  word,
    input  logic         ready
);
  // Places of the fields. Options that are left out are skipped.
  localparam logic [5:0] AtCheck = 6'd14;
  localparam logic [5:0] AtLimits = 6'd15;
  localparam logic [5:0] AtCredits = 6'd19;
  localparam logic [5:0] AtName = 6'd26;
  localparam logic [5:0] AtStamps = 6'd31;
  localparam logic [5:0] AtSecret = 6'd32;
  localparam logic [5:0] AtDigests = 6'd37;
  localparam logic [5:0] AtEnd = 6'd38;
  // Of a Refuse or Close.
  localparam logic [5:0] AtText = 6'd4;
  localparam logic [5:0] AtTextEnd = 6'd8;
  localparam logic [5:0] AtTrailer = 6'd39;

  typedef enum logic [1:0] {
    StateIdle,
    StateCheck,
    StateSend
  } state_t;

  state_t      state;
  logic [5:0]  at;
  logic [31:0] check;
  logic        is_greeting;
  assign is_greeting = kind == KindHello || kind == KindWelcome;

  // What people read: short, as a circuit has no words to spare.
  logic [127:0] text;
  logic [4:0]   text_length;
  always_comb begin
    text_length = 5'd0;
    text = 128'd0;
    if (kind == KindClose) begin
      unique case (code)
        CloseNormal: {text, text_length} = {"bye", 104'd0, 5'd3};
        CloseProtocol: {text, text_length} = {"protocol broken", 8'd0, 5'd15};
        default: {text, text_length} = {"overrun", 72'd0, 5'd7};
      endcase
    end else begin
      unique case (code)
        RefuseNotFarlane: {text, text_length} = {"not Farlane", 40'd0, 5'd11};
        RefuseVersion: {text, text_length} = {"version 2 only", 16'd0, 5'd14};
        RefuseRole: {text, text_length} = {"same role", 56'd0, 5'd9};
        RefuseMalformed: {text, text_length} = {"malformed", 56'd0, 5'd9};
        RefuseUnknownOption: {text, text_length} = {"unknown option", 16'd0, 5'd14};
        RefuseBusy: {text, text_length} = {"held, dial again", 5'd16};
        RefuseDeadline: {text, text_length} = {"too late", 64'd0, 5'd8};
        default: {text, text_length} = {"damaged", 72'd0, 5'd7};
      endcase
    end
  end

  logic [2:0] text_words, name_words;
  assign text_words = text_length[4:2] + {2'd0, text_length[1:0] != 2'd0};
  assign name_words = name_length[4:2] + {2'd0, name_length[1:0] != 2'd0};

  // Double words of the body.
  logic [5:0] body;
  always_comb begin
    if (is_greeting) begin
      body = 6'd23;
      if (name_length != 5'd0) body = body + 6'd1 + {3'd0, name_words};
      if (greeting.stamps) body = body + 6'd1;
      if (greeting.has_secret) body = body + 6'd5;
      if (greeting.digests) body = body + 6'd1;
    end else body = 6'd1 + {3'd0, text_words};
  end

  // The place behind `at`.
  logic [5:0] following;
  always_comb begin
    following = at + 6'd1;
    if (is_greeting) begin
      if (following == AtName && name_length == 5'd0) following = AtStamps;
      if (following == AtName + 6'd1 + {3'd0, name_words} && at >= AtName) following = AtStamps;
      if (following == AtStamps && !greeting.stamps) following = AtSecret;
      if (following == AtSecret && !greeting.has_secret) following = AtDigests;
      if (following == AtDigests && !greeting.digests) following = AtEnd;
    end else begin
      if (following == AtText + {3'd0, text_words}) following = AtTextEnd;
      if (at == AtTrailer) following = AtEnd;
      else if (following == AtTextEnd) following = digests && kind == KindClose ? AtTrailer : AtEnd;
    end
  end

  logic [31:0] value;  // the number at `at`
  logic [1:0]  quarter;  // of a text, a name or a secret
  logic [127:0] four;
  always_comb begin
    quarter = at[1:0];
    four = text;
    if (is_greeting) begin
      // 27 to 30, and 33 to 36.
      quarter = at < AtStamps ? at[1:0] - 2'd3 : at[1:0] - 2'd1;
      four = at < AtStamps ? name : greeting.secret;
    end
    value = four[7'd96-{quarter, 5'd0}+:32];
    if (at == 6'd0) value = {kind, 8'd0, 8'd0, body, 2'd0};
    else if (at == 6'd1) value = kind == KindRefuse ? 32'd0 : greeting.sequence_;
    else if (at == 6'd2) value = kind == KindRefuse ? check : greeting.acknowledge;
    else if (at == AtTrailer) value = check;
    else if (!is_greeting) begin
      if (at == 6'd3) value = {code, 11'd0, text_length};
    end else begin
      unique case (at)
        6'd3: value = MagicHigh;
        6'd4: value = MagicLow;
        6'd5: value = {Version, Version};
        6'd6: value = {kind == KindHello ? 8'd1 : 8'd2, greeting.outcome, 16'd0};
        6'd7: value = greeting.session[63:32];
        6'd8: value = greeting.session[31:0];
        6'd9: value = greeting.instance_[127:96];
        6'd10: value = greeting.instance_[95:64];
        6'd11: value = greeting.instance_[63:32];
        6'd12: value = greeting.instance_[31:0];
        6'd13: value = greeting.oldest;
        AtCheck: value = check;
        AtLimits: value = 32'h8001_000c;
        6'd16: value = {greeting.max_payload, 16'd0};
        6'd17: value = greeting.hold;
        6'd18: value = greeting.silence;
        AtCredits: value = 32'h8002_0018;
        6'd20: value = greeting.credits.lane[0].headers;
        6'd21: value = greeting.credits.lane[0].data;
        6'd22: value = greeting.credits.lane[1].headers;
        6'd23: value = greeting.credits.lane[1].data;
        6'd24: value = greeting.credits.lane[2].headers;
        6'd25: value = greeting.credits.lane[2].data;
        AtName: value = {16'h0003, 11'd0, name_length};
        AtStamps: value = 32'h0006_0000;
        AtSecret: value = 32'h8007_0010;
        AtDigests: value = 32'h800d_0000;
        default: ;
      endcase
    end
  end

  assign busy = state != StateIdle;
  assign valid = state == StateSend;
  assign word = swap(value);
  assign digest_word = word;
  assign digest_start = start;
  assign digest_add = state == StateCheck && at != AtEnd;

  always_ff @(posedge clk) begin
    if (drop) begin
      state <= StateIdle;
      at <= 6'd0;
    end else begin
      unique case (state)
        StateIdle: begin
          at <= 6'd0;
          // Zero stands in the place of the check while the check is computed.
          check <= 32'd0;
          if (start) state <= StateCheck;
        end
        StateCheck: begin
          at <= following;
          if (following == AtTrailer || following == AtEnd) at <= AtEnd;
          if (at == AtEnd) begin
            check <= digest;
            at <= 6'd0;
            state <= StateSend;
          end
        end
        StateSend: begin
          if (ready) begin
            at <= following;
            if (following == AtEnd) state <= StateIdle;
          end
        end
        default: state <= StateIdle;
      endcase
    end
  end
endmodule
