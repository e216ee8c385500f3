// Chooses the queue of a packet by its destination.
//
// Source: pure/niq/README.md, "Receiving"; `Filters::queue` in pure/niq. Combinational lookup; the
// first filter whose address is the destination decides. A filter that names a queue that there is
// not matches nothing.
module niq_filters
  import niq_pkg::*;
(
    input  logic        clk,
    input  logic        rst,

    // Registers: even ones have bytes 0 to 3 of an address, odd ones the rest.
    input  logic        write_valid,
    input  logic [4:0]  write_index,
    input  logic [31:0] write_data,
    input  logic [4:0]  read_index,
    output logic [31:0] read_data,

    input  logic [47:0] station,         // the card's address; its first byte is in bits 7:0
    input  logic        is_promiscuous,
    input  logic [47:0] destination,
    output logic        is_wanted,
    output queue_t      queue
);
  logic [31:0] low[FILTERS];
  logic [31:0] high[FILTERS];

  assign read_data = read_index[0] ? high[read_index[4:1]] : low[read_index[4:1]];

  always_ff @(posedge clk) begin
    for (int i = 0; i < int'(FILTERS); i++) begin
      if (rst) begin
        low[i] <= 32'd0;
        high[i] <= 32'd0;
      end else if (write_valid && write_index[4:1] == 4'(i)) begin
        if (write_index[0]) high[i] <= write_data;
        else low[i] <= write_data;
      end
    end
  end

  always_comb begin
    is_wanted = is_promiscuous || destination == station || destination == 48'hffff_ffff_ffff;
    queue = 2'd0;
    for (int i = int'(FILTERS) - 1; i >= 0; i--) begin
      if (high[i][31] && high[i][23:18] == 6'd0 && {high[i][15:0], low[i]} == destination) begin
        is_wanted = 1'b1;
        queue = high[i][17:16];
      end
    end
  end
endmodule
