// TLPs of the host as writes of up to four double words, and as requests that want completions.
//
// Source: PCIe Base, 2.2 (fmt, type, length, byte enables, addresses).
//
// A TLP comes in beats of 16 bytes; its byte 0 is in bits 7:0. Writes leave in the cycle in which
// their beat comes. A write with a header of 3 double words, from an address that is a multiple of
// 64 (H header, 0 to f data):
//
//   clk     0     1     2     3     4
//   beat    HHH0  1234  5678  9abc  def
//   write   0     1234  5678  9abc  def
//
// A beat that crosses a line of 64 bytes takes two cycles, so that a write is for one slot. Writes
// to BAR0 take a cycle each double word. Writes of other than whole double words, poisoned ones,
// those outside the BARs or across a page, and messages are dropped.
//
// Reads leave after all earlier writes. `write_ready` and `read_ready` may be low for any time.
module niq_requests
  import niq_pkg::*;
(
    input  logic         clk,
    input  logic         rst,
    // Where the BARs are, in bytes: BAR0 has 4 KiB, BAR2 has 256 KiB.
    input  logic [63:12] bar0,
    input  logic [63:18] bar2,

    input  logic         tlp_tvalid,
    output logic         tlp_tready,
    input  logic [127:0] tlp_tdata,
    input  logic [15:0]  tlp_tkeep,
    input  logic         tlp_tlast,

    output logic         write_valid,
    input  logic         write_ready,
    output write_t       write,

    output logic         read_valid,
    input  logic         read_ready,
    output read_t        read
);
  typedef enum logic [1:0] {
    HEAD,  // the beat has a header
    DATA,  // the beat has payload from lane `lane` on
    SKIP   // the rest of the TLP is dropped
  } state_t;

  state_t      state;
  logic [1:0]  lane;
  logic        window;
  logic [15:0] address;
  logic [10:0] remaining;

  // The header, of use in HEAD.
  logic [3:0][31:0] word;
  logic [2:0]  fmt;
  logic [4:0]  kind;
  logic [9:0]  length_field;
  logic [10:0] length;
  logic        is_long, has_data, is_memory, is_write, is_message, is_completion;
  logic        hits_bar0, hits_bar2, is_in_page, is_whole;
  logic [63:2] place;
  logic [3:0]  first, last;
  logic [2:0]  lead, trail;

  for (genvar i = 0; i < 4; i++) begin : g_word
    assign word[i] = big_endian(tlp_tdata[32*i +: 32]);
  end
  assign fmt = word[0][31:29];
  assign kind = word[0][28:24];
  assign length_field = word[0][9:0];
  assign length = {length_field == 10'd0, length_field};
  assign is_long = fmt[0];
  assign has_data = fmt[1];
  assign is_memory = kind == 5'b00000 && !fmt[2];
  assign is_write = is_memory && has_data;
  assign is_message = kind[4:3] == 2'b10;
  assign is_completion = kind[4:1] == 4'b0101;
  assign place = is_long ? {word[2], word[3][31:2]} : {32'd0, word[2][31:2]};
  assign hits_bar0 = place[63:12] == bar0;
  assign hits_bar2 = place[63:18] == bar2;
  // Requests must not cross a page of 4 KiB. PCIe Base, 2.2.7.
  assign is_in_page = {2'd0, place[11:2]} + {1'b0, length} <= 12'd1024;
  assign first = word[1][3:0];
  assign last = word[1][7:4];
`ifdef MUTANT_NIQ_PARTIAL_WRITES
  assign is_whole = is_in_page && first == 4'hf;
`else
  assign is_whole = is_in_page && first == 4'hf && (length == 11'd1 || last == 4'hf);
`endif

  // Byte Count and the low bits of Lower Address. PCIe Base, 2.3.1.1, table of byte counts.
  always_comb begin
    lead = first[0] ? 3'd0 : first[1] ? 3'd1 : first[2] ? 3'd2 : first[3] ? 3'd3 : 3'd0;
    if (length == 11'd1) begin
      trail = first[3] ? 3'd0 : first[2] ? 3'd1 : first[1] ? 3'd2 : 3'd3;
    end else begin
      trail = last[3] ? 3'd0 : last[2] ? 3'd1 : last[1] ? 3'd2 : last[0] ? 3'd3 : 3'd0;
    end
  end

  assign read = '{
      supported: is_memory && !has_data && is_in_page && (hits_bar0 || hits_bar2),
      window: hits_bar2,
      address: hits_bar2 ? place[17:2] : {6'd0, place[11:2]},
      length: length,
      byte_count: is_memory ? {length[9:0], 2'b00} - {9'd0, lead} - {9'd0, trail} : 12'd4,
      offset: is_memory ? lead[1:0] : 2'd0,
      requester: word[1][31:16],
      tag: word[1][15:8],
      byte1: word[0][23:16],
      attributes: word[0][13:12]
  };
  // A TLP with a prefix, which no function of this card asks for, is dropped.
  assign read_valid = tlp_tvalid && state == HEAD && !fmt[2] && !is_write && !is_message
                      && !is_completion;

  // The part of the beat that leaves now.
  logic        is_first;      // the payload begins in the beat of the header
  logic        to_window;
  logic [15:0] at;
  logic [1:0]  from;
  logic [10:0] left;
  logic [2:0]  kept, count, in_beat, in_line;
  logic        is_last_part;

  assign is_first = state == HEAD && is_write && is_whole && !word[0][14] && !is_long
                    && (hits_bar0 || hits_bar2);
  assign to_window = state == HEAD ? hits_bar2 : window;
  assign at = state == HEAD ? (hits_bar2 ? place[17:2] : {6'd0, place[11:2]}) : address;
  assign from = state == HEAD ? 2'd3 : lane;
  assign left = state == HEAD ? length : remaining;
  assign kept = tlp_tkeep[12] ? 3'd4 : tlp_tkeep[8] ? 3'd3 : tlp_tkeep[4] ? 3'd2
                : {2'd0, tlp_tkeep[0]};
  assign in_beat = kept > {1'b0, from} ? kept - {1'b0, from} : 3'd0;
`ifdef MUTANT_NIQ_WRITE_CROSSES_LINE
  assign in_line = 3'd4;
`else
  assign in_line = at[3:2] == 2'b11 ? 3'd4 - {1'b0, at[1:0]} : 3'd4;
`endif

  always_comb begin
    count = in_beat;
    if (count > in_line) count = in_line;
    if (!to_window && count > 3'd1) count = 3'd1;
    if (left < {8'd0, count}) count = left[2:0];
    is_last_part = count == in_beat || left == {8'd0, count};
  end

  assign write_valid = tlp_tvalid && (state == DATA || is_first) && count != 3'd0;
  assign write.window = to_window;
  assign write.address = at;
  for (genvar i = 0; i < 4; i++) begin : g_lane
    logic [1:0] index;  // of the double word in this write
    logic [1:0] source;
    assign index = 2'(i) - at[1:0];
    assign source = index + from;
    assign write.data[i] = tlp_tdata[32*source +: 32];
    assign write.strobe[i] = {1'b0, index} < count;
  end

  always_comb begin
    if (read_valid) tlp_tready = read_ready;
    else if (write_valid) tlp_tready = write_ready && is_last_part;
    else tlp_tready = 1'b1;
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= HEAD;
      lane <= 2'd0;
    end else if (tlp_tvalid && (tlp_tready || (write_valid && write_ready))) begin
      window <= to_window;
      if (write_valid) begin
        address <= at + {13'd0, count};
        remaining <= left - {8'd0, count};
      end else begin
        address <= at;
        remaining <= left;
      end
      if (!tlp_tready) begin
        state <= DATA;
        lane <= from + count[1:0];
      end else if (tlp_tlast) begin
        state <= HEAD;
        lane <= 2'd0;
      end else begin
        lane <= 2'd0;
        unique case (state)
          HEAD: state <= is_write && is_whole && !word[0][14] && (hits_bar0 || hits_bar2)
                         && !(is_first && left == {8'd0, count}) ? DATA : SKIP;
          DATA: state <= left == {8'd0, count} ? SKIP : DATA;
          default: state <= SKIP;
        endcase
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, word[0][15], word[0][11:10], word[3][1:0], word[2][1:0], lead[2],
                    tlp_tkeep[15:13], tlp_tkeep[11:9], tlp_tkeep[7:5], tlp_tkeep[3:1]};
endmodule
