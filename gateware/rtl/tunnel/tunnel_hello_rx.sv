// Reads a Hello, a Welcome or a Refuse, a double word a cycle, and checks it.
//
// Source: pure/tunnel/protocol.md, sections 2.1, 2.2 and 3; `greeting` of the Rust engine. The
// checks come in the protocol's order: the first bytes and the versions, then the Check, then
// everything else. Texts are skipped: their characters are not examined. `result` is for one cycle.
//
//           ____      ____      ____           ____      ____
// clk    __/    \____/    \____/    \__  ...  /    \____/    \__
// enable ______/‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾  ...  ‾‾‾‾‾‾‾‾‾‾‾\______
// take         X 1       X 1       X 1   ...  X 0       X
// result ______________________________  ...  /‾‾‾‾‾‾‾‾‾\______
module tunnel_hello_rx
  import tunnel_pkg::*;
(
    input  logic        clk,
    input  logic        enable,       // low begins afresh
    input  logic        upstream,     // this end awaits a Welcome, else a Hello
    input  logic [31:0] word,         // the stream's next double word, if `ready`
    input  logic        ready,
    output logic        take,
    // The digest of the bytes that are taken.
    output logic        digest_start, // before the first double word
    output logic [31:0] digest_word,
    input  logic [31:0] digest,       // of all double words taken before
    // The result: a greeting; a refusal by the peer; or why this end is to refuse.
    output logic        result,
    output logic        good,
    output logic        by_peer,
    output logic [15:0] code,         // of the refusal
    output greeting_t   greeting,
    output logic        member        // the sender is a further strand
);
  localparam logic [8:0] CheckAt = 9'd14;
  localparam logic [8:0] OptionsAt = 9'd15;

  typedef enum logic [1:0] {
    StateWords,
    StateEnd,
    StateOver
  } state_t;

  state_t      state;
  logic [8:0]  at;        // number of the double word in the frame
  logic [8:0]  length;    // double words of the frame
  logic        is_refuse;
  logic [15:0] refusal;   // the peer's
  logic [15:0] early;     // a fault that counts before the Check; 0 if none
  logic [15:0] late;      // the first fault that counts behind it; 0 if none
  logic [31:0] check;
  logic [7:0]  role;
  logic [14:0] seen;      // options, by their number
  // The option that is read.
  logic [15:0] option;
  logic [1:0]  option_rest;   // bytes of its last double word; 0 if all
  logic [8:0]  option_left; // double words of the value that are still to come
  logic [8:0]  option_at;
  logic        has_limits, has_credits;

  logic [31:0] value;
  assign value = swap(word);
  assign take = enable && ready && state == StateWords;
  assign digest_start = take && at == 9'd0;

  always_comb begin
    digest_word = word;
    if (at == CheckAt && !is_refuse) digest_word = 32'd0;
    if (at == 9'd2 && is_refuse) digest_word = 32'd0;
  end

  // The header's length field suits a greeting; in bytes.
  logic        length_fits;
  logic        kind_fits;
  logic        refuse_kind;
  assign refuse_kind = value[31:24] == KindRefuse;
  assign kind_fits = value[31:24] == (upstream ? KindWelcome : KindHello);
  always_comb begin
    if (refuse_kind) length_fits = value[15:0] >= 16'd4 && value[15:0] <= 16'd260;
    else length_fits = value[15:0] >= 16'd48 && value[15:0] <= 16'd1024;
    if (value[1:0] != 2'd0) length_fits = 1'b0;
  end

  // The next option's header, while none is read.
  logic        option_known;   // its number is one of the protocol's
  logic [14:0] option_bit;
  logic        length_right;   // its length is one that it can have
  logic        must_know;
  logic [15:0] option_dwords;
  always_comb begin
    option_known = value[30:16] >= 15'd1 && value[30:16] <= 15'd14;
    option_bit = option_known ? 15'd1 << value[19:16] : 15'd0;
    must_know = 1'b0;
    length_right = 1'b1;
    option_dwords = {2'd0, value[15:2]} + {15'd0, value[1:0] != 2'd0};
    unique case (value[31:16])
      16'h8001: length_right = value[15:0] == 16'd12;
      16'h8002: length_right = value[15:0] == 16'd24;
      16'h0003, 16'h0004, 16'h0005: length_right = value[15:0] <= 16'd64;
      16'h0006, 16'h0009, 16'h000a, 16'h800d: length_right = value[15:0] == 16'd0;
      16'h8007: length_right = value[15:0] == 16'd16;
      16'h0008: length_right = value[15:0] == 16'd4;
      16'h000b: length_right = value[15:0] == 16'd2;
      16'h800c: length_right = value[15:0] == 16'd10;
      16'h000e: length_right = value[15:0] == 16'd20;
      default: must_know = value[31];
    endcase
  end

  // The last double word of a value is filled up with zeros.
  logic padding_fits;
  always_comb begin
    unique case (option_rest)
      2'd0: padding_fits = 1'b1;
      2'd1: padding_fits = value[23:0] == 24'd0;
      2'd2: padding_fits = value[15:0] == 16'd0;
      2'd3: padding_fits = value[7:0] == 8'd0;
    endcase
    if (option_left != 9'd1) padding_fits = 1'b1;
  end

  // The fault that this double word shows, if any, by the moment at which it counts.
  logic [15:0] fault_early, fault_late;
  logic [8:0]  left;  // double words behind this one
  assign left = length - at - 9'd1;
  always_comb begin
    fault_early = 16'd0;
    fault_late = 16'd0;
    if (at == 9'd0) begin
      if (!kind_fits && !refuse_kind) fault_early = RefuseNotFarlane;
      else if (value[23:16] != 8'd0 || !length_fits) fault_early = RefuseMalformed;
    end else if (!is_refuse) begin
      unique case (at)
        9'd3: if (value != MagicHigh) fault_early = RefuseNotFarlane;
        9'd4: if (value != MagicLow) fault_early = RefuseNotFarlane;
        9'd5: begin
          if (value[31:16] > value[15:0]) fault_early = RefuseMalformed;
          else if (value[31:16] > Version || value[15:0] < Version) fault_early = RefuseVersion;
          // A Welcome chooses one version.
          else if (upstream && value[31:16] != value[15:0]) fault_late = RefuseMalformed;
        end
        9'd6: begin
          if (value[31:24] != 8'd1 && value[31:24] != 8'd2) fault_late = RefuseMalformed;
          if (upstream ? (value[23:16] != 8'd1 && value[23:16] != 8'd2) : value[23:16] != 8'd0)
            fault_late = RefuseMalformed;
          if (value[15:0] != 16'd0) fault_late = RefuseMalformed;
        end
        default:
        if (at >= OptionsAt) begin
          if (option_left == 9'd0) begin
            if (option_dwords > {7'd0, left}) fault_late = RefuseMalformed;
            else if ((seen & option_bit) != 15'd0 || !length_right) fault_late = RefuseMalformed;
            else if (must_know) fault_late = RefuseUnknownOption;
          end else begin
            if (!padding_fits) fault_late = RefuseMalformed;
            if (option == 16'h8001 && option_at == 9'd0 &&
                (value[31:16] < 16'd128 || value[31:16] > 16'd4096 || value[17:16] != 2'd0 ||
                 value[15:0] != 16'd0))
              fault_late = RefuseMalformed;
            if (option == 16'h8001 && option_at == 9'd2 && value == 32'd0)
              fault_late = RefuseMalformed;
            if (option == 16'h800c && option_at == 9'd2 && value[31:16] == 16'd0)
              fault_late = RefuseMalformed;
          end
        end
      endcase
    end
  end

  always_ff @(posedge clk) begin
    if (!enable) begin
      state <= StateWords;
      at <= 9'd0;
      length <= 9'd1;
      is_refuse <= 1'b0;
      early <= 16'd0;
      late <= 16'd0;
      check <= 32'd0;
      seen <= 15'd0;
      option <= 16'd0;
      option_rest <= 2'd0;
      option_left <= 9'd0;
      option_at <= 9'd0;
      has_limits <= 1'b0;
      has_credits <= 1'b0;
      greeting <= '0;
      member <= 1'b0;
    end else if (take) begin
      at <= at + 9'd1;
      if (late == 16'd0) late <= fault_late;
      early <= fault_early;
      // Nothing behind a fault that counts at once is read.
      if (fault_early != 16'd0 || (at != 9'd0 && left == 9'd0)) state <= StateEnd;
      unique case (at)
        9'd0: begin
          length <= value[10:2] + 9'd3;
          is_refuse <= refuse_kind;
        end
        9'd1: greeting.sequence_ <= value;
        9'd2: begin
          greeting.acknowledge <= value;
          if (is_refuse) check <= value;
        end
        9'd3: refusal <= value[31:16];
        9'd6: begin
          role <= value[31:24];
          greeting.outcome <= value[23:16];
        end
        9'd7: greeting.session[63:32] <= value;
        9'd8: greeting.session[31:0] <= value;
        9'd9, 9'd10, 9'd11, 9'd12: greeting.instance_ <= {greeting.instance_[95:0], value};
        9'd13: greeting.oldest <= value;
        CheckAt: check <= value;
        default: ;
      endcase
      if (at >= OptionsAt && !is_refuse) begin
        if (option_left == 9'd0) begin
          option <= value[31:16];
          option_rest <= value[1:0];
          option_left <= option_dwords[8:0];
          option_at <= 9'd0;
          seen <= seen | option_bit;
          if (value[31:16] == 16'h8001) has_limits <= 1'b1;
          if (value[31:16] == 16'h8002) has_credits <= 1'b1;
          if (value[31:16] == 16'h0006) greeting.stamps <= 1'b1;
          if (value[31:16] == 16'h8007) greeting.has_secret <= 1'b1;
          if (value[31:16] == 16'h800c) member <= 1'b1;
          if (value[31:16] == 16'h800d) greeting.digests <= 1'b1;
        end else begin
          option_left <= option_left - 9'd1;
          option_at <= option_at + 9'd1;
          if (option == 16'h8001) begin
            if (option_at == 9'd0) greeting.max_payload <= value[31:16];
            if (option_at == 9'd1) greeting.hold <= value;
            if (option_at == 9'd2) greeting.silence <= value;
          end
          if (option == 16'h8002) begin
            if (option_at == 9'd0) greeting.credits.lane[0].headers <= value;
            if (option_at == 9'd1) greeting.credits.lane[0].data <= value;
            if (option_at == 9'd2) greeting.credits.lane[1].headers <= value;
            if (option_at == 9'd3) greeting.credits.lane[1].data <= value;
            if (option_at == 9'd4) greeting.credits.lane[2].headers <= value;
            if (option_at == 9'd5) greeting.credits.lane[2].data <= value;
          end
          if (option == 16'h8007) greeting.secret <= {greeting.secret[95:0], value};
        end
      end
    end else if (state == StateEnd) begin
      state <= StateOver;
    end
  end

  assign result = enable && state == StateEnd;
  always_comb begin
    good = 1'b0;
    by_peer = 1'b0;
    code = 16'd0;
    if (early != 16'd0) code = early;
    // A Refuse with 0 for its check is of another version, and is believed.
    else if (digest != check && !(is_refuse && check == 32'd0)) code = RefuseDamaged;
    else if (is_refuse) begin
      by_peer = 1'b1;
      code = refusal;
    end else if (late != 16'd0) code = late;
    else if (!has_limits || !has_credits) code = RefuseMalformed;
    else if (role != (upstream ? 8'd2 : 8'd1)) code = RefuseRole;
    else good = 1'b1;
  end
endmodule
