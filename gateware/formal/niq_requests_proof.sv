// What holds of niq_requests, for any stream of TLPs: a write is for one BAR, one line, and whole
// double words; writes of a TLP are consecutive; what was offered stays until it is taken.
module niq_requests_proof
  import niq_pkg::*;
(
    input logic         clk,
    input logic [63:12] any_bar0,
    input logic [63:18] any_bar2,
    input logic         tlp_tvalid,
    input logic [127:0] tlp_tdata,
    input logic [2:0]   tlp_words,
    input logic         tlp_tlast,
    input logic         write_ready,
    input logic         read_ready
);
  logic started = 1'b0;
  logic rst;
  always_ff @(posedge clk) started <= 1'b1;
  assign rst = !started;

  logic [63:12] bar0;
  logic [63:18] bar2;
  always_ff @(posedge clk) begin
    if (rst) begin
      bar0 <= any_bar0;
      bar2 <= any_bar2;
    end
  end

  logic [15:0] tlp_tkeep;
  logic        tlp_tready, write_valid, read_valid;
  write_t      write;
  read_t       read;
  assign tlp_tkeep = 16'hffff >> {4 - tlp_words, 2'b00};

  niq_requests dut (.*);

  // The PCIe block: beats stay until they are taken, and only the last one is short.
  logic         waits, last_before;
  logic [127:0] data_before;
  logic [2:0]   words_before;
  always_ff @(posedge clk) begin
    waits <= started && tlp_tvalid && !tlp_tready;
    data_before <= tlp_tdata;
    words_before <= tlp_words;
    last_before <= tlp_tlast;
  end
  always_comb begin
    assume (tlp_words >= 3'd1 && tlp_words <= 3'd4);
    assume (tlp_tlast || tlp_words == 3'd4);
    if (waits) begin
      assume (tlp_tvalid && tlp_tdata == data_before && tlp_words == words_before
              && tlp_tlast == last_before);
    end
    if (!started) assume (!tlp_tvalid);
  end

  // The header of the TLP that a write belongs to.
  logic             is_head;
  logic [3:0][31:0] word, head_now, head;
  logic [63:0]      place;
  logic [10:0]      done;  // double words of the TLP that were written
  for (genvar i = 0; i < 4; i++) begin : g_word
    assign word[i] = big_endian(tlp_tdata[32*i +: 32]);
  end
  assign head_now = is_head ? word : head;
  assign place = head_now[0][29] ? {head_now[2], head_now[3]} : {32'd0, head_now[2]};
  always_ff @(posedge clk) begin
    if (rst) begin
      is_head <= 1'b1;
      done <= 11'd0;
    end else begin
      if (tlp_tvalid && tlp_tready) is_head <= tlp_tlast;
      if (tlp_tvalid && is_head) head <= word;
      if (tlp_tvalid && tlp_tready && tlp_tlast) done <= 11'd0;
      else if (write_valid && write_ready) done <= done + 11'($countones(write.strobe));
    end
  end

  logic        write_waits, read_waits;
  write_t      write_before;
  read_t       read_before;
  logic [11:0] length;
  assign length = {1'b0, head_now[0][9:0] == 10'd0, head_now[0][9:0]};
  always_ff @(posedge clk) begin
    write_waits <= started && write_valid && !write_ready;
    read_waits <= started && read_valid && !read_ready;
    write_before <= write;
    read_before <= read;
    if (started) begin
      if (write_waits) begin
        write_stays: assert (write_valid && write.address == write_before.address
                             && write.strobe == write_before.strobe
                             && write.window == write_before.window);
      end
      if (read_waits) read_stays: assert (read_valid && read == read_before);
      if (write_valid) begin
        not_both: assert (!read_valid);
        kind_is_write: assert (head_now[0][31:24] == 8'h40 || head_now[0][31:24] == 8'h60);
        not_poisoned: assert (!head_now[0][14]);
        whole_double_words: assert (head_now[1][3:0] == 4'hf
                                    && (length == 12'd1 || head_now[1][7:4] == 4'hf));
        in_its_bar: assert (write.window ? place[63:18] == bar2
                                         : place[63:12] == bar0 && write.address[15:10] == 6'd0);
        consecutive: assert (write.address[9:0] == place[11:2] + done[9:0]);
        no_more_than_the_length: assert ({1'b0, done} + 12'($countones(write.strobe)) <= length);
        some: assert (write.strobe != 4'd0);
        one_line: assert (write.address[3:2] != 2'd3
                          || (write.strobe & ~(4'hf << write.address[1:0])) == 4'd0);
        one_register: assert (write.window || $countones(write.strobe) == 1);
      end
      if (read_valid) begin
        read_in_its_bar: assert (!read.supported
                                 || (read.window ? place[63:18] == bar2 : place[63:12] == bar0));
        not_posted: assert (head_now[0][31:24] != 8'h40 && head_now[0][31:24] != 8'h60
                            && head_now[0][28:27] != 2'b10);
      end
    end
  end
endmodule
