// The states of both directions, of which one is busy at a time.
//
// A recording ends once all its chunks are on the medium or lost, and a Flush has been done. A
// replay ends once its last beat has left.
module streamer_control
  import streamer_pkg::*;
(
    input  logic             clk,
    input  logic             rst,
    input  logic             is_enabled,    // the SSD has the queues
    input  logic [2:0]       chunk_shift,
    input  page_t            media,         // size of the medium in pages; 0 if it is not known

    input  logic [1:0]       starts,        // of recording, of replay
    input  logic [1:0]       stops,
    input  logic [1:0][63:0] first,
    input  logic [1:0][63:0] maximum,
    input  logic [1:0][63:0] chunks_max,
    output state_t           record_state,
    output state_t           replay_state,
    output logic             is_busy,
    output logic             is_starting,
    output logic             is_replay,

    output logic             start,
    output page_t            first_page,
    output page_t            most_pages,
    output logic             stop_intake,
    input  logic             intake_runs,
    input  logic             intake_is_finished,
    input  logic             fault,
    input  logic             outlet_is_empty,

    input  logic             has_slot,
    input  slot_t            slot,
    input  logic             is_idle,
    input  logic             retire,
    input  logic             retire_lost,
    input  logic             retire_full,
    output logic             flush,
    input  logic             flushed,
    input  logic             flush_failed,

    output logic             ask,           // replay: a slot is filled with the chunk at `page`
    output page_t            page,
    output short_t           short_chunk,
    output logic             last_valid,    // replay: the last chunk is in `last_slot`
    output slot_t            last_slot,
    output logic             has_failed
);
  typedef enum logic [1:0] {
    REST,
    MEASURE,
    JUDGE,
    MOVE
  } step_t;
  step_t       step;
  state_t      state[2];
  logic        is_right, is_first_cycle, stops_now, is_over;
  logic [63:0] end_address;
  page_t       room, limit, left;
  pages_t      chunk;
  logic [4:0]  lost_in_a_row;
  logic        has_limit;

  assign record_state = state[0];
  assign replay_state = state[1];
  assign is_busy = step != REST;
  assign is_starting = step == MEASURE || step == JUDGE || is_first_cycle;
  assign chunk = chunk_pages(chunk_shift);

  // The range that a start asks for, in two steps.
  assign end_address = maximum[is_replay] == 64'd0 ? {16'd0, media, 12'd0} : maximum[is_replay];
  always_ff @(posedge clk) begin
    first_page <= first[is_replay][47:12];
    room <= end_address[47:12] - first[is_replay][47:12];
    is_right <= is_enabled
                && {first[is_replay][63:48], first[is_replay][11:0]} == 28'd0
                && {end_address[63:48], end_address[11:0]} == 28'd0
                && end_address > first[is_replay]
                && (media == 36'd0 || end_address[47:12] <= media);
    has_limit <= chunks_max[is_replay] != 64'd0 && chunks_max[is_replay][63:31] == 33'd0;
    limit <= {5'd0, chunks_max[is_replay][30:0]} << chunk_shift;
  end
  assign most_pages = has_limit && limit < room ? limit : room;
  assign start = step == JUDGE && is_right;

  // Of replay: the next chunk is asked for.
  assign ask = step == MOVE && is_replay && left != 36'd0 && has_slot && !is_first_cycle;
  assign flush = step == MOVE && !is_replay && intake_is_finished && is_idle && !is_first_cycle;
  assign is_over = is_replay
                   ? left == 36'd0 && is_idle && outlet_is_empty && !is_first_cycle
                   : flush && flushed;

  always_ff @(posedge clk) begin
    is_first_cycle <= start;
    if (rst) begin
      step <= REST;
      state[0] <= IDLE;
      state[1] <= IDLE;
      is_replay <= 1'b0;
      has_failed <= 1'b0;
      stop_intake <= 1'b0;
      last_valid <= 1'b0;
      short_chunk <= '0;
      left <= 36'd0;
    end else begin
      unique case (step)
        REST:
        if (starts != 2'b00) begin
          step <= MEASURE;
          is_replay <= !starts[0];
          state[!starts[0]] <= RUNNING;
        end
        MEASURE: step <= JUDGE;
        JUDGE: begin
          step <= is_right ? MOVE : REST;
          if (!is_right) state[is_replay] <= FAILED;
          has_failed <= 1'b0;
          stop_intake <= 1'b0;
          last_valid <= 1'b0;
          short_chunk <= '0;
          left <= is_replay ? most_pages : 36'd0;
          page <= first_page;
          lost_in_a_row <= 5'd0;
        end
        default: begin
          if (is_over) begin
            step <= REST;
            state[is_replay] <= has_failed || (!is_replay && flush_failed) ? FAILED : ENDED;
          end else if (stops_now || (!is_replay && !intake_runs && !is_first_cycle)
                       || (is_replay && left == 36'd0)) begin
            state[is_replay] <= ENDING;
          end
          if (stops_now) stop_intake <= 1'b1;
          if (ask) begin
            page <= page + {30'd0, chunk};
            if (left <= {30'd0, chunk}) begin
              left <= 36'd0;
              last_valid <= 1'b1;
              last_slot <= slot;
              short_chunk <= '{left < {30'd0, chunk}, slot, left[5:0], {left[5:0], 12'd0}};
            end else left <= left - {30'd0, chunk};
          end
          if (stops_now) left <= 36'd0;
          if (retire) lost_in_a_row <= retire_lost ? lost_in_a_row + 5'd1 : 5'd0;
          if (fault || (retire_lost && (is_replay || lost_in_a_row == LostInARowMax - 5'd1))) begin
            has_failed <= 1'b1;
          end
        end
      endcase
    end
  end
  assign stops_now = step == MOVE && !is_first_cycle
                     && (stops[is_replay] || has_failed || (retire_lost && retire_full));
endmodule
