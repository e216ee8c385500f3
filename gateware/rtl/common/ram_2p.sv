// A memory with one port that writes and one that reads, both on the same clock. The read port
// shows the word a cycle after its address; of a word that is written in the same cycle it shows
// the old value. FPGA tools make block RAM of it.
//
//          ____      ____      ____
// clk   __/    \____/    \____/    \__
// raddr  X A       X B       X
// rdata            X mem[A]  X mem[B]
module ram_2p #(
    parameter int unsigned Width = 128,
    parameter int unsigned Depth = 512,
    localparam int unsigned Bits = $clog2(Depth)
) (
    input  logic             clk,
    input  logic             write,
    input  logic [Bits-1:0]  waddr,
    input  logic [Width-1:0] wdata,
    input  logic [Bits-1:0]  raddr,
    output logic [Width-1:0] rdata
);
  logic [Width-1:0] words[Depth];

  always_ff @(posedge clk) begin
    if (write) words[waddr] <= wdata;
    rdata <= words[raddr];
  end
endmodule
