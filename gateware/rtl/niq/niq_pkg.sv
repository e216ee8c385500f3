// What the blocks of the low-latency network card share: lengths, headers, faults, counters.
//
// Source: pure/niq/README.md. Names are those of the Rust crate `farlane-niq`.
package niq_pkg;
  // Number of queues, of transmit slots and of receive lines of a queue, of filters.
  localparam int unsigned QUEUES = 4;
  localparam int unsigned SLOTS = 256;
  localparam int unsigned FILTERS = 16;

  // Lengths of a packet in bytes, from its destination address on, without its check sequence.
  localparam logic [13:0] PacketMin = 14'd14;
  localparam logic [13:0] PacketMax = 14'd9216;
  localparam logic [13:0] InlineMax = 14'd60;
  // In the place of a length: the packet is in host memory.
  localparam logic [7:0] ByReference = 8'hff;
  // The card reports the slots that it has taken once they are so many.
  localparam logic [6:0] REPORT = 7'd64;

  typedef logic [1:0] queue_t;
  // Row of 16 bytes of a ring: queue, slot or line, quarter.
  typedef logic [11:0] row_t;

  // The last double word of a slot or line.
  typedef struct packed {
    logic [15:0] lap;
    logic [7:0]  flags;
    logic [7:0]  length;
  } header_t;

  // Bit of `flags` of a slot: the host asks for a completion.
  localparam logic [7:0] COMPLETION = 8'h01;

  // Bits 15:8 of a queue's state register. A card whose window is its own has no fault 5, Window.
  typedef enum logic [2:0] {
    FAULT_NONE      = 3'd0,
    FAULT_OVERRUN   = 3'd1,
    FAULT_MALFORMED = 3'd2,
    FAULT_MEMORY    = 3'd3,
    FAULT_TAKEN     = 3'd4
  } fault_t;

  // A fault of the host of a queue, for one cycle.
  typedef struct packed {
    logic   valid;
    queue_t of_queue;
    fault_t fault;
  } failure_t;

  // Bits 7:0 of a queue's state register.
  typedef enum logic [1:0] {
    QUEUE_STOPPED = 2'd0,
    QUEUE_RUNNING = 2'd1,
    QUEUE_FAULTED = 2'd2
  } queue_state_t;

  // Events of one cycle that counters count; `length` is that of the packet in bytes.
  typedef struct packed {
    logic        sent;
    logic        link_down;
    logic [5:0]  length;
  } transmit_events_t;

  typedef struct packed {
    logic        received;
    logic        unwanted;
    logic        misshapen;
    logic        no_room;
    logic [5:0]  length;
  } receive_events_t;

  // Up to four consecutive double words for one BAR, of one line of 64 bytes. `address` is that of
  // the first in double words; the word for address `a` is in lane `a % 4`, if its strobe is set.
  typedef struct packed {
    logic             window;   // BAR2, not BAR0
    logic [15:0]      address;
    logic [3:0][31:0] data;
    logic [3:0]       strobe;
  } write_t;

  // A request that wants a completion.
  typedef struct packed {
    logic        supported;     // a read of a BAR; others get Unsupported Request
    logic        window;        // BAR2, not BAR0
    logic [15:0] address;       // in double words
    logic [10:0] length;        // in double words
    logic [11:0] byte_count;    // of the first completion; 0 is 4096
    logic [1:0]  offset;        // of the first byte in its double word
    logic [15:0] requester;
    logic [7:0]  tag;
    logic [7:0]  byte1;         // traffic class, upper tag bits, attribute 2
    logic [1:0]  attributes;
  } read_t;

  // The double word of a TLP, whose first byte is its most significant one. PCIe Base, 2.2.1.
  function automatic logic [31:0] big_endian(input logic [31:0] word);
    return {word[7:0], word[15:8], word[23:16], word[31:24]};
  endfunction
endpackage
