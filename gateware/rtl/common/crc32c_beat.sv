// CRC32C over one beat of up to four double words, in one cycle.
//
// Source: the polynomial of Castagnoli, 0x1EDC6F41, reflected, as in RFC 9260 (SCTP), appendix A.
// The Rust engine's name for it is `engine::crc32c`.
//
// Byte 0 of `data` (bits 7:0) is the first on the wire. Double words fill a beat from bit 0; those
// beyond `dwords` are ignored. `state` is the register before the beat, all ones at the start of a
// frame; `next` is the register behind it. The digest is `~next`, most significant byte first.
//
// A register of zero stays zero over leading zeros. So a short beat is moved to the end of a full
// one, and one matrix over GF(2) serves all lengths. Combinational: no clock.
module crc32c_beat (
    input  logic [31:0]  state,
    input  logic [127:0] data,
    input  logic [2:0]   dwords,  // 1 to 4; with 0, `next` is `state`
    output logic [31:0]  next
);
  localparam logic [31:0] Polynomial = 32'h82f6_3b78;

  typedef logic [31:0][127:0] matrix_t;

  // Row j has the bits of a full beat whose sum is bit j of the register behind that beat.
  function automatic matrix_t matrix();
    matrix_t rows;
    logic [31:0] column;
    for (int word = 0; word < 4; word++) begin
      for (int place = 0; place < 32; place++) begin
        column = 32'h1 << place;
        for (int step = 32 * word; step < 128; step++) begin
          column = column[0] ? (column >> 1) ^ Polynomial : column >> 1;
        end
        for (int row = 0; row < 32; row++) rows[row][32 * word + place] = column[row];
      end
    end
    return rows;
  endfunction

  localparam matrix_t Rows = matrix();

  logic [127:0] moved;

  always_comb begin
    unique case (dwords)
      3'd1: moved = {data[31:0] ^ state, 96'h0};
      3'd2: moved = {data[63:32], data[31:0] ^ state, 64'h0};
`ifdef MUTANT_CRC_SHORT_BEAT
      3'd3: moved = {data[95:32], data[31:0] ^ state, data[127:96]};
`else
      3'd3: moved = {data[95:32], data[31:0] ^ state, 32'h0};
`endif
      default: moved = {data[127:32], data[31:0] ^ state};
    endcase
    for (int row = 0; row < 32; row++) next[row] = ^(moved & Rows[row]);
    if (dwords == 3'd0) next = state;
  end
endmodule
