// Names and numbers of the tunnel protocol, version 2 (pure/tunnel/protocol.md).
//
// Double words lie in a beat as on the wire: bits 7:0 are the first byte. The protocol's integers
// are big-endian, so `swap` turns a double word of a beat into a number and back.
package tunnel_pkg;
  // Kinds of frames, section 2.
  localparam logic [7:0] KindHello = 8'h01;
  localparam logic [7:0] KindWelcome = 8'h02;
  localparam logic [7:0] KindRefuse = 8'h03;
  localparam logic [7:0] KindClose = 8'h04;
  localparam logic [7:0] KindTlp = 8'h10;
  localparam logic [7:0] KindReset = 8'h11;
  localparam logic [7:0] KindCredit = 8'h12;
  localparam logic [7:0] KindPing = 8'h20;
  localparam logic [7:0] KindPong = 8'h21;

  // Codes of a Refuse, section 2.2.
  localparam logic [15:0] RefuseNotFarlane = 16'd1;
  localparam logic [15:0] RefuseVersion = 16'd2;
  localparam logic [15:0] RefuseRole = 16'd3;
  localparam logic [15:0] RefuseMalformed = 16'd4;
  localparam logic [15:0] RefuseUnknownOption = 16'd5;
  localparam logic [15:0] RefuseInUse = 16'd6;
  localparam logic [15:0] RefuseBusy = 16'd7;
  localparam logic [15:0] RefuseDeadline = 16'd8;
  localparam logic [15:0] RefuseDamaged = 16'd10;

  // Codes of a Close, section 2.2.
  localparam logic [15:0] CloseNormal = 16'd1;
  localparam logic [15:0] CloseProtocol = 16'd2;
  localparam logic [15:0] CloseOverrun = 16'd3;

  // "FARLANE" and a line feed.
  localparam logic [31:0] MagicHigh = 32'h4641_524c;
  localparam logic [31:0] MagicLow = 32'h414e_450a;
  localparam logic [15:0] Version = 16'd2;

  // Section 5: a lane of the ordering table. The value is the lane's place in a Credit.
  typedef enum logic [1:0] {
    LanePosted     = 2'd0,
    LaneNonPosted  = 2'd1,
    LaneCompletion = 2'd2
  } lane_t;

  // Headers, and payload in units of 16 bytes: an amount, or a count that wraps.
  typedef struct packed {
    logic [31:0] headers;
    logic [31:0] data;
  } amount_t;

  // The limits of all lanes, `lane[n]` of lane n.
  typedef struct packed {amount_t [2:0] lane;} limits_t;

  // The fields of a Hello or Welcome, and the header of its frame.
  typedef struct packed {
    logic [31:0]  sequence_;
    logic [31:0]  acknowledge;
    logic [7:0]   outcome;
    logic [63:0]  session;
    logic [127:0] instance_;
    logic [31:0]  oldest;
    logic [15:0]  max_payload;
    logic [31:0]  hold;      // milliseconds
    logic [31:0]  silence;   // milliseconds
    limits_t      credits;
    logic         stamps;
    logic         digests;
    logic         has_secret;
    logic [127:0] secret;
  } greeting_t;

  // The fields of a TLP's first beat.
  typedef struct packed {
    lane_t       lane;
    logic [10:0] dwords;   // of the whole TLP
    logic [10:0] payload;  // double words
    logic [8:0]  units;    // of 16 bytes of payload
    logic        known;    // the header begins in the first beat
  } meter_t;

  // A numbered frame that is kept until it is acknowledged.
  typedef struct packed {
    logic        is_reset;
    logic [10:0] dwords;  // of the TLP
  } kept_t;

  // How a connection or a link ends, as `tunnel_rx` finds.
  typedef enum logic [2:0] {
    FaultNone     = 3'd0,
    FaultDamaged  = 3'd1,  // a digest is wrong, or a header that cannot be one
    FaultProtocol = 3'd2,  // a rule is broken
    FaultClosed   = 3'd3,  // a Close has come
    FaultLeft     = 3'd4   // a Refuse has come after the Welcome
  } fault_t;

  // Counters and limits stay closer together than 2^30, so that they can be compared although they
  // wrap.
  function automatic logic is_within(input logic [31:0] count, input logic [31:0] limit);
    logic [31:0] left;
    left = limit - count;
    return left <= 32'h4000_0000;
  endfunction

  function automatic logic amount_within(input amount_t count, input amount_t limit);
    return is_within(count.headers, limit.headers) && is_within(count.data, limit.data);
  endfunction

  function automatic amount_t amount_plus(input amount_t one, input amount_t other);
    amount_t sum;
    sum.headers = one.headers + other.headers;
    sum.data = one.data + other.data;
    return sum;
  endfunction

  function automatic amount_t cost_of(input logic [8:0] units);
    amount_t cost;
    cost.headers = 32'd1;
    cost.data = {23'd0, units};
    return cost;
  endfunction

  function automatic logic [31:0] swap(input logic [31:0] word);
    return {word[7:0], word[15:8], word[23:16], word[31:24]};
  endfunction

  // Four numbers as a beat, the first one first on the wire.
  function automatic logic [127:0] beat(input logic [31:0] one, input logic [31:0] two,
                                        input logic [31:0] three, input logic [31:0] four);
    return {swap(four), swap(three), swap(two), swap(one)};
  endfunction

  // Beats that hold this many double words.
  function automatic logic [8:0] beats_of(input logic [10:0] dwords);
    return dwords[10:2] + {8'd0, dwords[1:0] != 2'd0};
  endfunction

  // Which double words of a beat are there, the first `count`.
  function automatic logic [3:0] first_words(input logic [2:0] count);
    unique case (count)
      3'd0: return 4'b0000;
      3'd1: return 4'b0001;
      3'd2: return 4'b0011;
      3'd3: return 4'b0111;
      default: return 4'b1111;
    endcase
  endfunction

  // The fields of a TLP's first double word: its size, and how it is ordered.
  typedef struct packed {
    logic       has_digest;  // TD
    logic [9:0] length;      // double words; 0 means 1024
    logic [1:0] fmt;         // bit 1: with data, bit 0: a header of four double words
    logic [4:0] kind;        // Type
  } head_t;

  function automatic head_t head_of(input logic [127:0] first, input logic [1:0] place);
    head_t head;
    head.has_digest = first[{place, 5'd23}];
    head.length = {first[{place, 5'd16}+:2], first[{place, 5'd24}+:8]};
    head.fmt = first[{place, 5'd5}+:2];
    head.kind = first[{place, 5'd0}+:5];
    return head;
  endfunction

  // PCI Express Base 4.0, 2.2.1: a TLP's first beat measured, with up to three prefixes.
  function automatic meter_t measure(input logic [127:0] first);
    meter_t meter;
    head_t head;
    logic [2:0] prefixes;
    meter.known = 1'b1;
    head = head_of(first, 2'd0);
    prefixes = 3'd0;
    // The first byte of a prefix begins with 100.
    if (first[7:5] == 3'b100) begin
      head = head_of(first, 2'd1);
      prefixes = 3'd1;
      if (first[39:37] == 3'b100) begin
        head = head_of(first, 2'd2);
        prefixes = 3'd2;
        if (first[71:69] == 3'b100) begin
          head = head_of(first, 2'd3);
          prefixes = 3'd3;
          if (first[103:101] == 3'b100) meter.known = 1'b0;
        end
      end
    end
    meter.payload = 11'd0;
    if (head.fmt[1]) meter.payload = {head.length == 10'd0, head.length};
    meter.units = beats_of(meter.payload);
    meter.dwords = meter.payload + (head.fmt[0] ? 11'd4 : 11'd3) + {8'd0, prefixes} +
                   {10'd0, head.has_digest};
    if (head.kind[4:3] == 2'b10 || (head.kind == 5'd0 && head.fmt[1])) meter.lane = LanePosted;
    else if (head.kind[4:1] == 4'b0101) meter.lane = LaneCompletion;
    else meter.lane = LaneNonPosted;
    return meter;
  endfunction
endpackage
