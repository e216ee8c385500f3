// The account of one direction: bytes that came, that the medium has, that are lost, and the rest.
//
// Bytes that came are those on the medium, those lost and those in the buffer, in each cycle.
// `Account` in Rust. Numbers have 48 bits.
module streamer_account
  import streamer_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        start,
    input  logic [47:0] first_address,  // with `start`

    input  bytes_t      add_bytes,
    input  bytes_t      add_stored,
    input  logic [18:0] add_lost,
    input  bytes_t      add_fill,
    input  logic [18:0] sub_fill,
    input  logic        ends,           // the last byte on the medium lies before `end_address`
    input  logic [47:0] end_address,

    output logic [47:0] bytes,
    output logic [47:0] stored,
    output logic [47:0] lost,
    output logic [31:0] fill,
    output logic [31:0] high_water,
    output logic [47:0] last_address
);
  always_ff @(posedge clk) begin
    if (rst || start) begin
      bytes <= 48'd0;
      stored <= 48'd0;
      lost <= 48'd0;
      fill <= 32'd0;
      high_water <= 32'd0;
      last_address <= rst ? 48'd0 : first_address;
    end else begin
      bytes <= bytes + {30'd0, add_bytes};
      stored <= stored + {30'd0, add_stored};
      lost <= lost + {29'd0, add_lost};
      fill <= fill + {14'd0, add_fill} - {13'd0, sub_fill};
      if (fill > high_water) high_water <= fill;
      if (ends) last_address <= end_address;
    end
  end
endmodule
