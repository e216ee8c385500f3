// The SSD's window: entries of the submission queue, lists of pages, the completion queue. None but
// the last is stored.
//
// | offset   | bytes               | content |
// |---|---|---|
// | 000000h  | 64 an entry         | submission queue |
// | 100000h  | 16 an entry         | completion queue |
// | 400000h  | 256 a slot          | PRP lists: the addresses of a chunk's pages but the first |
//
// Source: NVM Express Base 2.0, 4.1 (entries), 4.1.1 (PRP), 4.2.1 (completions); NVM Command Set
// 1.0, 3.2.4 and 3.2.6 (Read, Write).
module streamer_window
  import streamer_pkg::*;
#(
    parameter int unsigned Entries = 64,
    localparam int unsigned EntryBits = $clog2(Entries)
) (
    input  logic                 clk,
    input  logic                 rst,
    input  setup_t               setup,
    input  logic                 is_replay,
    input  short_t               short_chunk,

    output logic [EntryBits-1:0] entry,
    input  command_t             entry_command,
    output slot_t                entry_slot,
    input  page_t                entry_page,
    input  logic [EntryBits-1:0] completion,
    output logic [31:0]          completed,
    input  logic                 clear_entry,

    input  logic                 s_arvalid,
    output logic                 s_arready,
    input  logic [22:0]          s_araddr,
    input  logic [7:0]           s_arlen,
    output logic                 s_rvalid,
    input  logic                 s_rready,
    output logic [127:0]         s_rdata,
    output logic                 s_rlast,

    input  logic                 s_awvalid,
    output logic                 s_awready,
    input  logic [22:0]          s_awaddr,
    input  logic                 s_wvalid,
    output logic                 s_wready,
    input  logic [127:0]         s_wdata,
    input  logic [15:0]          s_wstrb,
    input  logic                 s_wlast,
    output logic                 s_bvalid,
    input  logic                 s_bready,
    output logic                 is_busy
);
  // Reads: a beat takes two cycles or more.
  typedef enum logic [1:0] {
    ACCEPT,
    FIND,
    SHOW
  } step_t;
  step_t        step;
  logic [22:4]  at;
  logic [7:0]   beats;
  logic [127:0] shown;

  assign s_arready = step == ACCEPT;
  assign entry = at[EntryBits+5:6];
  assign entry_slot = entry_command[13:0];
  assign s_rlast = beats == 8'd0;
  always_ff @(posedge clk) begin
    if (rst) begin
      step <= ACCEPT;
      s_rvalid <= 1'b0;
    end else begin
      unique case (step)
        ACCEPT:
        if (s_arvalid) begin
          at <= s_araddr[22:4];
          beats <= s_arlen;
          step <= FIND;
        end
        FIND: step <= SHOW;
        default: begin
          s_rvalid <= 1'b1;
          if (!s_rvalid) s_rdata <= shown;
          else if (s_rready) begin
            s_rvalid <= 1'b0;
            at <= at + 1'b1;
            beats <= beats - 8'd1;
            step <= s_rlast ? ACCEPT : FIND;
          end
        end
      endcase
    end
  end

  // A Write, Read or Flush.
  logic         is_flush, is_list;
  pages_t       pages;
  logic [63:0]  data, list, second, block;
  logic [15:0]  blocks;
  logic [7:0]   opcode;
  logic [127:0] words;
  assign is_flush = entry_command == FLUSH;
  assign pages = short_chunk.valid && short_chunk.slot == entry_slot
                 ? short_chunk.pages : chunk_pages(setup.chunk_shift);
  assign is_list = pages > 6'd2;
  assign data = slot_address(setup.buffer, setup.chunk_shift, entry_slot);
  assign list = {setup.window, 1'b1, entry_slot, 8'd0};
  always_comb begin
    second = data + 64'd4096;
    if (is_list) second = list;
    if (pages == 6'd1) second = 64'd0;
  end
  assign block = {28'd0, entry_page} << setup.block_shift;
  assign blocks = ({10'd0, pages} << setup.block_shift) - 16'd1;
  assign opcode = is_flush ? 8'h00 : is_replay ? 8'h02 : 8'h01;
  always_comb begin
    words = 128'd0;
    unique case (at[5:4])
      2'd0: words = {64'd0, setup.nsid, entry_command, 8'd0, opcode};
      2'd1: if (!is_flush) words = {data, 64'd0};
      2'd2: if (!is_flush) words = {block, second};
      default: if (!is_flush) words = {112'd0, blocks};
    endcase
  end

  // Two entries of a list of pages.
  logic [63:0] listed;
  assign listed = slot_address(setup.buffer, setup.chunk_shift, at[21:8]) + {47'd0, at[7:4], 13'd0};
  always_comb begin
    shown = 128'd0;
    if (at[22]) shown = {listed + 64'd8192, listed + 64'd4096};
    else if (!at[20]) shown = words;
  end

  // Writes: double word 3 of a completion alone is of interest.
  logic [31:0] completions[Entries];
  logic [22:4] to;
  logic        writes, is_completion;
  assign s_awready = !writes && !s_bvalid;
  assign s_wready = writes;
  assign is_completion = to[22:20] == 3'b001 && s_wstrb[15:12] == 4'hf;
  assign completed = completions[completion];
  always_ff @(posedge clk) begin
    if (clear_entry) completions[completion] <= 32'd0;
    else if (s_wvalid && s_wready && is_completion) begin
      completions[to[EntryBits+3:4]] <= s_wdata[127:96];
    end
    if (rst) begin
      writes <= 1'b0;
      s_bvalid <= 1'b0;
    end else begin
      if (s_awvalid && s_awready) begin
        writes <= 1'b1;
        to <= s_awaddr[22:4];
      end
      if (s_wvalid && s_wready) begin
        to <= to + 1'b1;
        writes <= !s_wlast;
        s_bvalid <= s_wlast;
      end
      if (s_bready && s_bvalid) s_bvalid <= 1'b0;
    end
  end

  assign is_busy = step != ACCEPT || writes || s_bvalid;

  logic unused;
  assign unused = &{1'b0, setup, s_araddr[3:0], s_awaddr[3:0], s_wdata[95:0], s_wstrb[11:0],
                    short_chunk.bytes};
endmodule
