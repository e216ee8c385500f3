// The log of gaps: chunks that are lost in a row, and for the same cause, are one gap.
//
// The log has the first `Gaps` ones; the count goes on.
module streamer_gaps
  import streamer_pkg::*;
#(
    parameter int unsigned Gaps = 512,
    localparam int unsigned Bits = $clog2(Gaps)
) (
    input  logic            clk,
    input  logic            rst,
    input  logic            start,
    input  pages_t          chunk,        // pages
    input  logic            lost_before,  // for want of room in the buffer
    input  page_t           page_before,
    input  logic            lost_behind,  // by the medium
    input  page_t           page_behind,
    output logic [31:0]     count,
    output logic            is_busy,

    input  logic [Bits-1:0] index,
    output page_t           gap_page,     // two cycles after `index`
    output logic [26:0]     gap_chunks,
    output logic            gap_behind
);
  typedef struct packed {
    logic        behind;
    logic [26:0] chunks;
    page_t       page;
  } gap_t;

  // A chunk of both in one cycle: that of the buffer waits.
  logic  waits, lost, behind, goes_on, keeps;
  page_t waiting, page, next;
  gap_t  last;
  assign behind = lost_behind;
  assign lost = lost_behind || lost_before || waits;
  assign page = lost_behind ? page_behind : waits ? waiting : page_before;
  assign goes_on = count != 32'd0 && last.behind == behind && next == page;
  assign is_busy = waits || keeps;

  always_ff @(posedge clk) begin
    if (rst || start) begin
      waits <= 1'b0;
      keeps <= 1'b0;
      count <= 32'd0;
    end else begin
      waits <= lost_behind && (lost_before || waits);
      if (!waits) waiting <= page_before;
      keeps <= lost;
      if (lost) begin
        next <= page + {30'd0, chunk};
        if (goes_on) last.chunks <= last.chunks + 27'd1;
        else begin
          last <= '{behind, 27'd1, page};
          count <= count + 32'd1;
        end
      end
    end
  end

  logic [31:0] kept_at;
  gap_t        shown;
  assign kept_at = count - 32'd1;
  ram_2p #(
      .Width(64),
      .Depth(Gaps)
  ) log (
      .clk, .write(keeps && kept_at < 32'(Gaps)), .waddr(kept_at[Bits-1:0]), .wdata(last),
      .raddr(index), .rdata(shown)
  );
  assign {gap_behind, gap_chunks, gap_page} = shown;
endmodule
