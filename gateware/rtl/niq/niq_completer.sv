// Answers the reads of a host: completions with data of registers, receive lines and credits.
//
// Source: PCIe Base, 2.2.9 (completions), 2.3.1.1 (data return). A completion ends at a multiple of
// 128 bytes, the Read Completion Boundary of an endpoint, so it is shorter than any Max Payload
// Size. It leaves without gaps once it is whole. Other requests get Unsupported Request.
//
// Of the window, a host reads what the card writes: receive lines and credits. All else is 0.
//
// A read of a line of 64 bytes at a multiple of 64 (H header, 0 to f data):
//
//   clk            0       1       2     3     4     5     6     7     8     9     10
//   state          ACCEPT  HEADER  FETCH FETCH FETCH FETCH FETCH ACCEPT
//   read_address           .       0     1     5     9     13
//   beat                                 HHH0  1234  5678  9abc  def
//   tlp                                                          HHH0  1234  5678  9abc  def
//
// A request waits while the completion before it is not taken, and so do the writes behind it.
module niq_completer
  import niq_pkg::*;
(
    input  logic             clk,
    input  logic             rst,
    input  logic [15:0]      completer,   // bus, device, function

    input  logic             read_valid,
    output logic             read_ready,
    input  read_t            read,
    input  logic             is_clearing, // no read is begun

    // While the card writes a line, no completion begins; while one is read, the card waits.
    input  logic             is_writing,
    output logic             is_reading,

    output logic [15:0]      read_address,
    output logic             read_follows,
    input  logic [31:0]      register_data,
    input  logic [3:0][31:0] line_data,
    input  logic [3:0][63:0] credit,
    input  logic [3:0][63:0] completed,

    output logic             tlp_tvalid,
    input  logic             tlp_tready,
    output logic [127:0]     tlp_tdata,
    output logic [15:0]      tlp_tkeep,
    output logic             tlp_tlast,
    output logic             is_busy
);
  typedef enum logic [1:0] {
    ACCEPT,
    HEADER,
    FETCH
  } state_t;

  // Lanes of a beat that one fetch fills.
  typedef struct packed {
    logic       valid;
    logic [1:0] lane;
    logic [2:0] count;
    logic       last;
    logic [1:0] align;      // lane of the first double word in the memory's row
    logic       is_credit;
    logic       is_line;
    logic       is_register;
  } fetch_t;

  state_t            state;
  read_t             request;
  logic [5:0]        fetched;  // double words of this completion
  logic [5:0]        part;     // of this completion
  logic [10:0]       left;     // of the request, with this completion
  logic [5:0]        to_boundary;
  logic [3:0][31:0]  credits;
  fetch_t            fetch, arrives;
  logic [3:0][31:0]  beat, beat_next;
  logic              has_room;

`ifdef MUTANT_NIQ_ANSWER_PAST_BOUNDARY
  assign to_boundary = 6'd32;
`else
  assign to_boundary = 6'd32 - {1'b0, request.address[4:0]};
`endif
  assign part = left < {5'd0, to_boundary} ? left[5:0] : to_boundary;

  assign read_ready = state == ACCEPT && !is_clearing;
  assign is_reading = request.window && ((state == HEADER && has_room) || state == FETCH);

  // The header of the completion. PCIe Base, 2.2.9.
  logic [31:0] header0, header1, header2;
  assign header0 = {
      1'b0, request.supported, 1'b0, 5'b01010,
      request.byte1 & 8'hfc,
      2'b00, request.attributes, 2'b00, request.supported ? {4'd0, part} : 10'd0
  };
  assign header1 = {completer, request.supported ? 3'b000 : 3'b001, 1'b0, request.byte_count};
  assign header2 = {
      request.requester, request.tag,
      1'b0, request.supported ? {request.address[4:0], request.offset} : 7'd0
  };

  // Fetches of this cycle.
  logic [5:0] wanted;
  assign wanted = part - fetched;
  assign read_address = request.address + {10'd0, fetched};
  assign read_follows = fetched != 6'd0;
  always_comb begin
    fetch = '0;
    fetch.valid = state == FETCH;
    fetch.lane = fetched[1:0] + 2'd3;
    if (fetched == 6'd0 || !request.window || wanted == 6'd1) fetch.count = 3'd1;
    else fetch.count = wanted > 6'd4 ? 3'd4 : wanted[2:0];
    fetch.last = wanted == {3'd0, fetch.count};
    fetch.align = read_address[1:0];
    fetch.is_register = !request.window;
    fetch.is_line = request.window && read_address[13:12] == 2'b01;
    fetch.is_credit = request.window && read_address[13:2] == 12'h800;
  end

  logic begins, completes;
  assign begins = state == HEADER && has_room && !(is_writing && request.window);
  assign completes = state == FETCH && fetch.last;

  always_ff @(posedge clk) begin
    arrives <= fetch;
    if (rst) begin
      state <= ACCEPT;
      arrives <= '0;
    end else begin
      unique case (state)
        ACCEPT:
        if (read_valid && read_ready) begin
          state <= HEADER;
          request <= read;
          left <= read.length;
        end
        HEADER: begin
          fetched <= 6'd0;
          credits <= {completed[request.address[15:14]], credit[request.address[15:14]]};
          if (begins) state <= request.supported ? FETCH : ACCEPT;
        end
        default: begin
          fetched <= fetched + {3'd0, fetch.count};
          if (completes) begin
            state <= left == {5'd0, part} ? ACCEPT : HEADER;
            left <= left - {5'd0, part};
            request.address <= request.address + {10'd0, part};
            request.byte_count <= request.byte_count - {4'd0, part, 2'b00}
                                  + {10'd0, request.offset};
            request.offset <= 2'd0;
          end
        end
      endcase
    end
  end

  logic [31:0] swapped0, swapped1, swapped2;
  assign swapped0 = big_endian(header0);
  assign swapped1 = big_endian(header1);
  assign swapped2 = big_endian(header2);

  // What the memories give joins the beat.
  for (genvar i = 0; i < 4; i++) begin : g_lane
    logic [1:0]  index, source;
    logic        is_in;
    logic [31:0] word;
    assign index = 2'(i) - arrives.lane;
    assign source = arrives.align + index;
    assign is_in = arrives.valid && {1'b0, index} < arrives.count;
    always_comb begin
      word = 32'd0;
      if (arrives.is_register) word = register_data;
      if (arrives.is_line) word = line_data[source];
      // Only the first row of the credit line has numbers.
      if (arrives.is_credit && source >= arrives.align) word = credits[source];
    end
    assign beat_next[i] = is_in ? word : beat[i];
  end

  always_ff @(posedge clk) begin
    if (state == HEADER) beat <= {32'd0, swapped2, swapped1, swapped0};
    else beat <= beat_next;
  end

  // A completion of 32 double words has 9 beats.
  localparam int unsigned Depth = 16;
  typedef struct packed {
    logic             last;
    logic [3:0]       keep;
    logic [3:0][31:0] data;
  } beat_t;

  beat_t      fifo[Depth];
  beat_t      pushed, head;
  logic       push, pop;
  logic [3:0] write_at, read_at;
  logic [4:0] held, whole;  // beats; completions that are whole
  logic [2:0] filled;

  assign has_room = held + {4'd0, arrives.valid} <= 5'd7;
  assign filled = {1'b0, arrives.lane} + arrives.count;
  always_comb begin
    push = arrives.valid && (filled == 3'd4 || arrives.last);
    pushed = '{last: arrives.last, keep: 4'hf >> (3'd4 - filled), data: beat_next};
    if (begins && !request.supported) begin
      push = 1'b1;
      pushed = '{last: 1'b1, keep: 4'h7, data: {32'd0, swapped2, swapped1, swapped0}};
    end
  end

  always_ff @(posedge clk) begin
    if (push) fifo[write_at] <= pushed;
    if (rst) begin
      write_at <= 4'd0;
      read_at <= 4'd0;
      held <= 5'd0;
      whole <= 5'd0;
    end else begin
      write_at <= write_at + {3'd0, push};
      read_at <= read_at + {3'd0, pop};
      held <= held + {4'd0, push} - {4'd0, pop};
      whole <= whole + {4'd0, push && pushed.last} - {4'd0, pop && head.last};
    end
  end

  assign head = fifo[read_at];
  assign pop = tlp_tvalid && tlp_tready;
`ifdef MUTANT_NIQ_ANSWER_GAPS
  assign tlp_tvalid = held != 5'd0;
`else
  assign tlp_tvalid = whole != 5'd0;
`endif
  assign tlp_tdata = head.data;
  assign tlp_tlast = head.last;
  for (genvar i = 0; i < 4; i++) begin : g_keep
    assign tlp_tkeep[4*i +: 4] = {4{head.keep[i]}};
  end
  assign is_busy = state != ACCEPT || arrives.valid || held != 5'd0;

  logic unused;
  assign unused = &{1'b0, request.length};
endmodule
