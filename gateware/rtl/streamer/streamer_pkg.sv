// Declarations for the blocks of the Streamer: types, states, the setup that software writes.
//
// Source: pure/record/registers.md. Names are those of the Rust crate `farlane-record`.
package streamer_pkg;
  // A slot of the stream buffer holds one chunk.
  typedef logic [13:0] slot_t;
  // Pages of 4 KiB: an address on the medium.
  typedef logic [35:0] page_t;
  // Pages in a chunk, at most 32.
  typedef logic [5:0] pages_t;
  // Bytes in a chunk, at most 128 KiB.
  typedef logic [17:0] bytes_t;
  // A command identifier: the attempt, from 0 on, and the slot.
  typedef logic [15:0] command_t;

  // Beats of 128 bits in a burst of the stream buffer's memory, and in a page.
  localparam int unsigned BurstBeats = 64;
  // The command identifier of a Flush.
  localparam command_t FLUSH = 16'hffff;
  // A chunk that the medium does not take is lost after so many attempts. `ATTEMPTS_MAX` in Rust.
  localparam logic [1:0] AttemptLast = 2'd2;
  // So many lost chunks in a row end a recording. `LOST_IN_A_ROW_MAX` in Rust.
  localparam logic [4:0] LostInARowMax = 5'd16;

  // Whether bytes move. `State` in Rust.
  typedef enum logic [2:0] {
    IDLE = 3'd0,
    ARMED = 3'd1,
    RUNNING = 3'd2,
    ENDING = 3'd3,
    ENDED = 3'd4,
    FAILED = 3'd5
  } state_t;

  // Of a slot: the end of its command.
  typedef enum logic [1:0] {
    NO_COMMAND = 2'd0,
    UNDER_WAY = 2'd1,
    STORED = 2'd2,
    LOST = 2'd3
  } fate_t;

  // The setup: software writes it before the first start.
  typedef struct packed {
    logic         enable;       // the SSD has the queues
    logic         waits;        // a stream waits when the buffer is full
    logic [2:0]   chunk_shift;  // pages in a chunk as a power of 2: 2 to 5
    logic [1:0]   block_shift;  // blocks in a page as a power of 2: 0 to 3
    logic [14:0]  chunks;       // slots of the stream buffer
    logic [10:0]  entries;      // of each queue
    logic [31:0]  nsid;
    logic [63:17] buffer;       // address of the stream buffer
    logic [63:23] window;       // address of the SSD's window
    logic [63:2]  tail_bell;    // address of the doorbell of the submission queue's tail
    logic [63:2]  head_bell;    // address of the doorbell of the completion queue's head
  } setup_t;

  // The last chunk of a direction, if it is shorter than the others.
  typedef struct packed {
    logic   valid;
    slot_t  slot;
    pages_t pages;
    bytes_t bytes;
  } short_t;

  function automatic pages_t chunk_pages(input logic [2:0] shift);
    return 6'd1 << shift;
  endfunction

  function automatic logic [63:0] slot_address(input logic [63:17] buffer, input logic [2:0] shift,
                                              input slot_t slot);
    return {buffer, 17'd0} + ({50'd0, slot} << (5'd12 + {2'd0, shift}));
  endfunction

  function automatic slot_t slot_after(input logic [14:0] chunks, input slot_t slot);
    return {1'b0, slot} == chunks - 15'd1 ? 14'd0 : slot + 14'd1;
  endfunction
endpackage
