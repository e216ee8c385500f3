// crc32c_beat against the serial register of the polynomial, a bit each step.
//
// Source: RFC 9260, appendix A. Bits of a byte come from the least significant one on.
//
// Both are sums over GF(2) of the bits of `state` and `data`. So it is enough that they agree on
// each bit alone and on none. `crc32c_beat_linear` shows that the circuit is such a sum.
module crc32c_beat_proof (
    input logic       clk,
    input logic [7:0] index,
    input logic [2:0] dwords
);
  logic [31:0]  state, next, serial;
  logic [127:0] data;
  assign {data, state} = index < 8'd160 ? 160'd1 << index : 160'd0;

  crc32c_beat dut (.*);

  always_comb begin
    serial = state;
    for (int i = 0; i < 128; i++) begin
      if (i < 32 * int'(dwords)) begin
        serial = {1'b0, serial[31:1]} ^ (serial[0] ^ data[i] ? 32'h82f6_3b78 : 32'd0);
      end
    end
  end

  always_ff @(posedge clk) begin
    if (dwords <= 3'd4) same_as_serial: assert (next == serial);
  end
endmodule
