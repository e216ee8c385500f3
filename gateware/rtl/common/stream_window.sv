// Cuts a byte stream into double words, however the stream is cut into beats, and shows the next
// four of them.
//
// The stream comes in over AXI4-Stream, 128 bits. Byte 0 (bits 7:0) is first. The bytes of a beat
// are contiguous from byte 0. Of the `count` double words that wait, `words` has the
// first four, the oldest in bits 31:0. `take` of them, at most `count`, leave at the clock edge.
//
//            ____      ____      ____      ____
// clk     __/    \____/    \____/    \____/    \__
// s_tvalid  /‾‾‾‾‾‾‾‾‾\________________________      a beat of 16 bytes
// count     0         X 4       X 1       X 1
// take      0         X 3       X 0       X 1        a header, then a digest
//
// `partial` says that bytes wait: whole double words, or less than one.
module stream_window (
    input  logic             clk,
    input  logic             clear,
    input  logic             s_tvalid,
    output logic             s_tready,
    input  logic [127:0]     s_tdata,
    input  logic [15:0]      s_tkeep,
    output logic [3:0][31:0] words,
    output logic [3:0]       count,
    input  logic [2:0]       take,
    output logic             partial
);
  // Bytes that are less than a double word.
  logic [23:0]  rest;
  logic [1:0]   rest_count;
  logic [4:0]   bytes;
  logic [4:0]   sum;
  logic [151:0] joined;
  logic [3:0]   kept;
  logic [7:0][31:0] held;
  logic [7:0][31:0] moved;
  logic [7:0][31:0] added;
  logic [127:0] masked;

  assign words    = held[3:0];
  assign s_tready = count <= 4'd4;
  assign partial  = count != 4'd0 || rest_count != 2'd0;

  always_comb begin
    bytes = 5'd0;
    for (int place = 0; place < 16; place++) begin
      bytes = bytes + {4'd0, s_tkeep[place]};
      masked[8*place+:8] = s_tkeep[place] ? s_tdata[8*place+:8] : 8'd0;
    end
    sum = bytes + {3'd0, rest_count};
    unique case (rest_count)
      2'd0: joined = {24'd0, masked};
      2'd1: joined = {16'd0, masked, rest[7:0]};
      2'd2: joined = {8'd0, masked, rest[15:0]};
      2'd3: joined = {masked, rest};
    endcase
    kept  = count - {1'b0, take};
    moved = held >> {take, 5'd0};
    added = {128'd0, joined[127:0]} << {kept, 5'd0};
  end

  always_ff @(posedge clk) begin
    if (clear) begin
      count <= 4'd0;
      rest_count <= 2'd0;
    end else if (s_tvalid && s_tready) begin
      // Words beyond `kept` are zero in `moved`, so that the new ones can be laid over them.
      for (int word = 0; word < 8; word++) begin
        held[word] <= (word < int'(kept)) ? moved[word] : added[word];
      end
      count <= kept + {1'b0, sum[4:2]};
      rest_count <= sum[1:0];
      unique case (sum[4:2])
        3'd0: rest <= joined[23:0];
        3'd1: rest <= joined[55:32];
        3'd2: rest <= joined[87:64];
        3'd3: rest <= joined[119:96];
        default: rest <= joined[151:128];
      endcase
    end else begin
      held <= moved;
      count <= kept;
    end
  end
endmodule
