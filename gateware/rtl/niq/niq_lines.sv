// The receive lines of all queues, and the reads of hosts from them.
//
// Source: pure/niq/README.md, "BAR2: the window". The card writes a row of 16 bytes each cycle, the
// header's row last. A host reads up to four consecutive double words from any address: `data` is
// that of `read_address` one cycle before, the word for address `a` in lane `a % 4`. The users
// exclude each other for the length of a line, so that a host sees a line before or after a write.
// `clear` zeroes the lines of a queue, a row each cycle.
module niq_lines
  import niq_pkg::*;
(
    input  logic             clk,
    input  logic             rst,

    // Zero the queue's lines; `cleared` in the last cycle of that. No other use meanwhile.
    input  logic             clear,
    input  queue_t           clear_queue,
    output logic             cleared,

    input  logic             write_valid,
    input  row_t             write_row,
    input  logic [127:0]     write_data,

    // In double words, as in the window.
    input  logic [15:0]      read_address,
    output logic [3:0][31:0] data
);
  logic [9:0]   clear_row;
  logic         is_written;
  row_t         row;
  logic [127:0] written;
  logic [3:0]   lanes;

  always_ff @(posedge clk) begin
    if (rst || !clear) clear_row <= 10'd0;
    else clear_row <= clear_row + 10'd1;
  end
  assign cleared = clear && clear_row == 10'h3ff;

  assign is_written = clear || write_valid;
  assign row = clear ? {clear_queue, clear_row} : write_row;
  assign written = clear ? 128'd0 : write_data;
  assign lanes = 4'hf << read_address[1:0];

  for (genvar i = 0; i < 4; i++) begin : g_bank
    logic [31:0] bank[QUEUES * SLOTS * 4];
    row_t        at;
    assign at = {read_address[15:14], read_address[11:2]} + {11'd0, !lanes[i]};

    always_ff @(posedge clk) begin
      if (is_written) bank[row] <= written[32*i +: 32];
      data[i] <= bank[at];
    end
  end

  logic unused;
  assign unused = &{1'b0, read_address[13:12]};
endmodule
