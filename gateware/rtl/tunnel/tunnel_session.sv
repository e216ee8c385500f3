// The state of a session: connections, handshakes, the link, and everything that has a deadline.
//
// Source: pure/tunnel/protocol.md, sections 3, 4 and 6; `Session` of the Rust engine. States:
//
//   upstream    idle ──dial──> dialling ──connected──> greeting ──> awaiting ──Welcome──> open
//   downstream  idle ──connected──> awaiting ──Hello──> answering ──> open
//   both        renewing, between awaiting and answering or open: the old link's TLPs leave first
//               last: a Refuse or Close goes out; closing: until the connection has gone
//
//             ____      ____      ____      ____      ____
// clk      __/    \____/    \____/    \____/    \____/    \__
// frame    __/‾‾‾‾‾‾‾‾‾\_____________________________________
// accept   __/‾‾‾‾‾‾‾‾‾\_____________________________________   a TLP with the right number
// expected X n         X n + 1
module tunnel_session
  import tunnel_pkg::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic [63:0]  now,
    // Settings; see `tunnel_port`.
    input  logic         upstream,
    input  logic         run,
    input  logic         cfg_digests,
    input  logic         cfg_stamps,
    input  logic [127:0] cfg_instance,
    input  logic [31:0]  cfg_hold_ms,
    input  logic [31:0]  cfg_silence_ms,
    input  logic [39:0]  cfg_handshake,
    input  logic [39:0]  cfg_ping,
    input  logic [39:0]  cfg_acknowledge,
    input  logic [39:0]  cfg_redial_min,
    input  logic [39:0]  cfg_redial_max,
    input  logic [191:0] entropy,
    input  logic [15:0]  max_payload,    // bytes that this end takes
    input  limits_t      window,
    // The network.
    output logic         net_dial,
    input  logic         net_failed,
    input  logic         net_connected,
    output logic         net_close,
    output logic         net_ready,      // bytes are taken
    output logic         net_discard,    // and dropped
    input  logic         net_heard,      // bytes have come
    input  logic         net_partial,    // bytes wait that are no whole frame
    input  logic         net_empty,      // nothing waits to be sent
    // The handshake.
    output logic         hello_enable,
    input  logic         hello_result,
    input  logic         hello_good,
    input  logic         hello_by_peer,
    input  logic [15:0]  hello_code,
    input  greeting_t    hello,
    input  logic         hello_member,
    output logic         say_start,
    output logic         say_drop,
    output logic [7:0]   say_kind,
    output logic [15:0]  say_code,
    output greeting_t    say,
    input  logic         say_busy,
    // Frames behind it.
    output logic         is_open,
    output logic         tx_enable,      // low drops a frame that has begun
    input  logic         rx_begun,
    input  logic         rx_bad,
    input  logic         frame,
    input  logic [7:0]   frame_kind,
    input  logic [15:0]  frame_length,
    input  logic [31:0]  frame_sequence,
    input  logic [31:0]  frame_acknowledge,
    input  logic [5:0][31:0] frame_body,
    input  logic         frame_fits,     // a TLP is well-formed and had room
    output logic         accept,
    // Credits.
    output logic         link_start,
    output limits_t      peer_limits,    // of a Credit or a greeting
    output logic         allow,
    input  logic         withdrawn,
    output logic         arrive,
    output logic         arrive_drop,
    input  logic         arrive_fits,
    input  logic         credit_segment,
    // Kept frames.
    input  logic [31:0]  oldest,
    input  logic [31:0]  next,
    input  logic [31:0]  cursor,
    input  logic         waits,
    output logic         forget,
    output logic         resume,
    output logic [31:0]  acknowledge,
    // The transmitter.
    output logic         tx_hold,
    input  logic         tx_idle,
    input  logic         tx_heads,
    output logic         credit_due,
    input  logic         credit_taken,
    output logic         ping_due,
    input  logic         ping_taken,
    output logic         pong_due,
    output logic [63:0]  pong_sent_at,
    output logic [63:0]  pong_received_at,
    input  logic         pong_taken,
    output logic [31:0]  expected,
    output logic [63:0]  received_at,
    output logic         stamped,
    output logic         digests,
    output logic [10:0]  payload_max,    // double words that the peer takes
    // The link.
    output logic         link,
    output logic         link_up,        // as the PCI Express side sees it
    input  logic         drained,        // nothing of an old link is left
    input  logic         hot_reset,
    output logic         reset_todo,     // a reset is to be numbered
    input  logic         reset_numbered,
    output logic         put_reset,      // towards the device
    input  logic         reset_delivered,
    // For the shell.
    output logic [63:0]  round_trip,
    output logic [31:0]  resumptions,
    output logic         stopped,        // a refusal that dialling again cannot change
    output logic         working,
    output logic [63:0]  wake_at
);
  typedef enum logic [3:0] {
    StateIdle,
    StateDialling,
    StateGreeting,
    StateAwaiting,
    StateRenewing,
    StateAnswering,
    StateOpen,
    StateLast,
    StateClosing
  } state_t;

  localparam int unsigned TimerDial = 0;
  localparam int unsigned TimerHandshake = 1;
  localparam int unsigned TimerHold = 2;
  localparam int unsigned TimerAcknowledge = 3;
  localparam int unsigned TimerPing = 4;
  localparam int unsigned TimerSilence = 5;
  localparam int unsigned TimerRest = 6;  // for the rest of a frame
  localparam int unsigned Timers = 7;
  localparam logic [Timers-1:0] OfConnection = 7'b111_1010;

  // Section 6: the first five Pings come 20 ms apart.
  localparam logic [2:0] PingsQuick = 3'd4;
  localparam logic [63:0] PingQuickInterval = 64'd20_000_000;
  localparam logic [63:0] PingIntervalMin = 64'd1_000_000;
  // Section 4: an acknowledgement waits for company until there is this much to acknowledge.
  localparam logic [6:0] AcknowledgeFrames = 7'd64;
  localparam logic [17:0] AcknowledgeBytes = 18'd131_072;
  localparam logic [4:0] ResetsMax = 5'd16;

  state_t       state;
  logic         entered;       // the first cycle in a state
  // The link.
  logic [63:0]  id;
  logic [127:0] peer;
  logic [127:0] secret;
  logic         has_secret;
  logic         heard, resumed;  // a frame has come, or the peer has come back
  logic         renewed;         // the handshake begins a new session
  logic [63:0]  hold, ping_interval;
  logic [4:0]   resets_pending, resets_todo;
  // Acknowledgements and Pings.
  logic [6:0]   unacknowledged_frames;
  logic [17:0]  unacknowledged_bytes;
  logic         acknowledge_due, credit_must;
  logic         ping_awaited;
  logic [63:0]  ping_sent_at;
  logic [2:0]   pings_quick;
  logic [39:0]  redial_delay;

  logic [Timers-1:0] arm, disarm, armed, due;
  logic [Timers-1:0][63:0] at;
  tunnel_timers #(.Count(Timers)) timers (
      .clk, .rst, .now, .arm, .at, .disarm, .armed, .due, .wake_at
  );

  function automatic logic [63:0] of_millis(input logic [31:0] millis);
    return {32'd0, millis} * 64'd1_000_000;
  endfunction

  logic [63:0] silence, peer_third, peer_ping;
  assign silence = of_millis(cfg_silence_ms);
  // A third of the peer's Silence, rounded down.
  assign peer_third = {32'd0, hello.silence} * 64'd333_333;
  assign peer_ping = peer_third < PingIntervalMin ? PingIntervalMin : peer_third;

  // ---- The handshake ----
  logic can_resume, knows, admits, resumes, fits;
  assign can_resume = link && hello.session == id && hello.instance_ == peer &&
                      hello.acknowledge - oldest <= next - oldest &&
                      expected - hello.oldest <= hello.sequence_ - hello.oldest;
  // Every bit is compared, whatever the others are.
  assign knows = has_secret && hello.has_secret && (hello.secret ^ secret) == 128'd0;
  // One connection at a time: the former one is lost when another comes.
  assign admits = !link || knows || !(heard || resumed);
  assign resumes = upstream ? hello.outcome == 8'd2 : (can_resume && knows);
  always_comb begin
    if (resumes) fits = can_resume;
    else fits = !upstream || (hello.sequence_ == 32'd0 && hello.acknowledge == 32'd0 &&
                              hello.has_secret && hello.session != 64'd0);
    if (upstream && hello.digests != cfg_digests) fits = 1'b0;
    for (int lane = 0; lane < 3; lane++) begin
      if (!amount_within('0, hello.credits.lane[lane])) fits = 1'b0;
    end
  end

  assign hello_enable = state == StateAwaiting || state == StateRenewing || state == StateAnswering;
  logic greets;
  assign greets = state == StateGreeting || state == StateAnswering;
  assign say_start = entered && (greets || state == StateLast) && tx_idle && !say_busy;
  assign say_drop = !(greets || state == StateLast);

  logic [7:0] last_kind;
  assign say_kind = state == StateGreeting ? KindHello :
                    state == StateAnswering ? KindWelcome : last_kind;

  // Numbers in a greeting must not change while it is made.
  logic [31:0] said_sequence, said_acknowledge, said_oldest;
  logic [63:0] said_session;
  always_comb begin
    say.sequence_ = said_sequence;
    say.acknowledge = said_acknowledge;
    say.oldest = said_oldest;
    say.session = said_session;
    say.outcome = upstream ? 8'd0 : renewed ? 8'd1 : 8'd2;
    say.instance_ = cfg_instance;
    say.max_payload = max_payload;
    say.hold = cfg_hold_ms;
    say.silence = cfg_silence_ms;
    say.credits = window;
    say.stamps = cfg_stamps;
    say.digests = digests;
    say.has_secret = upstream ? has_secret : renewed;
    say.secret = secret;
  end

  // ---- Frames ----
  logic numbered, number_right, in_order, broken, closed, left, flags_loss;
  assign numbered = frame_kind == KindTlp || frame_kind == KindReset;
  assign number_right = frame_sequence == expected &&
                        frame_acknowledge - oldest <= cursor - oldest;
  assign in_order = frame && state == StateOpen && frame_kind != KindClose &&
                    frame_kind != KindRefuse && number_right;
  assign closed = frame && frame_kind == KindClose;
  assign left = frame && frame_kind == KindRefuse && !upstream &&
                (!heard || frame_body[0][31:16] == RefuseDeadline);
  always_comb begin
    broken = 1'b0;
    if (frame) begin
      unique case (frame_kind)
        KindTlp: broken = !number_right || !frame_fits || !arrive_fits;
        KindReset: begin
          if (upstream) broken = frame_body[0] != 32'd2 || resets_pending == 5'd0;
          else broken = frame_body[0] != 32'd1 || resets_pending == ResetsMax;
          if (!number_right) broken = 1'b1;
        end
        KindCredit: broken = !number_right || withdrawn;
        KindClose: broken = 1'b0;
        KindRefuse: broken = !left;
        default: broken = !number_right;
      endcase
    end
    // Without digests, bytes that are no frame break the protocol.
    if (rx_bad && !digests) broken = 1'b1;
  end
  logic good_frame;
  assign good_frame = in_order && !broken;
  assign arrive = good_frame && frame_kind == KindTlp;
  // Frames that come before a reset is done were sent before it.
  assign arrive_drop = arrive && upstream && resets_pending != 5'd0;
  assign accept = arrive && !arrive_drop;
  assign forget = in_order && frame_acknowledge != oldest;
  assign allow = in_order && frame_kind == KindCredit;
  assign put_reset = good_frame && frame_kind == KindReset && !upstream;
  assign acknowledge = resume ? hello.acknowledge : frame_acknowledge;
  always_comb begin
    peer_limits = hello.credits;
    if (state == StateOpen) begin
      for (int lane = 0; lane < 3; lane++) begin
        peer_limits.lane[lane].headers = frame_body[2*lane];
        peer_limits.lane[lane].data = frame_body[2*lane+1];
      end
    end
  end

  // ---- How a connection ends ----
  logic overrun, opens, ends_open, lost, loses, unanswered;
  assign overrun = hot_reset && upstream && link && resets_pending == ResetsMax;
  assign lost = !net_connected;
  assign flags_loss = (rx_bad && digests) || left || due[TimerSilence] || due[TimerRest];
  // From open to anything else, without a word to the peer.
  assign loses = state == StateOpen && (lost || flags_loss) && !broken && !closed;
  // The Welcome may not have arrived.
  assign unanswered = state == StateAnswering && (lost || due[TimerHandshake]);
  assign ends_open = state == StateOpen && (broken || overrun);

  assign is_open = state == StateOpen;
  assign tx_enable = (state == StateOpen || state == StateLast) && !lost;
  assign opens = state == StateOpen && entered;
  assign resume = opens && !renewed;
  assign net_dial = state == StateDialling;
  assign net_close = state == StateClosing;
  assign net_ready = state != StateIdle && state != StateDialling;
  assign net_discard = !net_ready || state == StateLast || state == StateClosing;
  assign tx_hold = state != StateOpen || opens;
  assign credit_due = acknowledge_due || credit_must || credit_segment;
  assign link_start = state == StateRenewing && drained && !link_up;
  assign reset_todo = resets_todo != 5'd0;

  // The next time to dial: a random part of a quarter later.
  logic        redials;
  logic [39:0] redial_now, redial_doubled;
  logic [63:0] redial_at;
  assign redial_at = now + {24'd0, redial_now} + {24'd0, (redial_now >> 2) & entropy[39:0]};
  assign redial_doubled = redial_now << 1;

  // A refusal by the peer, as an upstream end takes it.
  logic refusal_passes;
  assign refusal_passes = hello_code == RefuseBusy || hello_code == RefuseDeadline ||
                          hello_code == RefuseDamaged || hello_code == RefuseNotFarlane ||
                          hello_code == RefuseMalformed;

  always_comb begin
    redials = 1'b0;
    redial_now = redial_delay;
    unique case (state)
      StateDialling: redials = net_failed;
      StateGreeting: redials = lost || due[TimerHandshake];
      StateAwaiting: begin
        redials = lost || due[TimerHandshake] || (hello_result && !(hello_good && fits));
        if (!lost && (due[TimerHandshake] || (hello_result && hello_code != RefuseDamaged)))
          redial_now = cfg_redial_max;
      end
      StateOpen: begin
        redials = loses || closed || ends_open;
        redial_now = loses ? 40'd0 : cfg_redial_max;
      end
      default: ;
    endcase
    if (!upstream) redials = 1'b0;
  end

  always_comb begin
    arm = '0;
    at = '0;
    disarm = '0;
    at[TimerDial] = redial_at;
    arm[TimerDial] = redials;
    at[TimerHandshake] = now + {24'd0, cfg_handshake};
    at[TimerHold] = now + hold;
    at[TimerAcknowledge] = now + {24'd0, cfg_acknowledge};
    at[TimerPing] = now + ping_interval;
    if (pings_quick != 3'd0 && PingQuickInterval < ping_interval)
      at[TimerPing] = now + PingQuickInterval;
    at[TimerSilence] = now + silence;
    at[TimerRest] = now + silence;
    if (state == StateIdle) begin
      if (!run) begin
        // Ready to dial at once when it runs again.
        arm[TimerDial] = upstream;
        at[TimerDial] = 64'd0;
      end
      disarm[TimerDial] = due[TimerDial] && upstream && run;
      arm[TimerHandshake] = net_connected && !upstream;
    end
    if (state == StateGreeting && entered) arm[TimerHandshake] = 1'b1;
    if (state == StateAwaiting && due[TimerHandshake]) arm[TimerHandshake] = 1'b1;
    if (state == StateLast) begin
      disarm = disarm | OfConnection;
      disarm[TimerHandshake] = 1'b0;
      if (!armed[TimerHandshake]) arm[TimerHandshake] = 1'b1;
    end
    if (loses || unanswered) arm[TimerHold] = 1'b1;
    if (opens) begin
      disarm[TimerHold] = 1'b1;
      disarm[TimerHandshake] = 1'b1;
      arm[TimerPing] = 1'b1;
      at[TimerPing] = now;
    end
    if (state == StateOpen) begin
      if (due[TimerPing]) arm[TimerPing] = 1'b1;
      if (opens || net_heard) arm[TimerSilence] = 1'b1;
      if (!(rx_begun || net_partial)) disarm[TimerRest] = 1'b1;
      else if (frame || !armed[TimerRest]) arm[TimerRest] = 1'b1;
      if (due[TimerAcknowledge] || tx_heads) disarm[TimerAcknowledge] = 1'b1;
      if (good_frame && numbered && !(armed[TimerAcknowledge] && !tx_heads))
        arm[TimerAcknowledge] = 1'b1;
    end
    // Timers of a connection end with it.
    if (state == StateIdle && !arm[TimerHandshake]) disarm = disarm | OfConnection;
    if (state == StateClosing) disarm = disarm | OfConnection;
    if (!link || link_start) disarm[TimerHold] = 1'b1;
    if (due[TimerHold]) disarm[TimerHold] = 1'b1;
    if (rst) begin
      arm = '0;
      arm[TimerDial] = upstream;
      at[TimerDial] = 64'd0;
    end
  end

  logic link_ends;  // the link goes down
  assign link_ends = ends_open || (state == StateOpen && closed) || due[TimerHold] ||
                     (!run && (state == StateIdle || (state == StateLast && entered))) ||
                     (upstream && state == StateAwaiting && hello_result && hello_by_peer &&
                      !refusal_passes);

  assign working = greets || state == StateRenewing || state == StateLast ||
                   entered || (due & ~(7'd1 << TimerDial)) != 7'd0 ||
                   (due[TimerDial] && state == StateIdle && run && !stopped) ||
                   (state == StateIdle && net_connected && !upstream) || (link != link_up) ||
                   (state == StateOpen && (!run || lost));

  always_ff @(posedge clk) begin
    entered <= 1'b0;

    unique case (state)
      StateIdle: begin
        if (!run) stopped <= 1'b0;
        else if (upstream) begin
          if (due[TimerDial] && !stopped) state <= StateDialling;
        end else if (net_connected) state <= StateAwaiting;
      end
      StateDialling: begin
        if (net_connected) begin
          state <= StateGreeting;
          entered <= 1'b1;
        end else if (net_failed) state <= StateIdle;
        else if (!run) state <= StateClosing;
        digests <= cfg_digests;
        said_sequence <= link ? next : 32'd0;
        said_acknowledge <= link ? expected : 32'd0;
        said_oldest <= link ? oldest : 32'd0;
        said_session <= link ? id : 64'd0;
      end
      StateGreeting: begin
        if (lost) state <= StateIdle;
        else if (due[TimerHandshake]) state <= StateClosing;
        else if (!entered && !say_busy) state <= StateAwaiting;
      end
      StateAwaiting: begin
        if (lost) state <= StateIdle;
        else if (!run) state <= StateClosing;
        else if (due[TimerHandshake]) begin
          say_code <= RefuseDeadline;
          last_kind <= KindRefuse;
          state <= StateLast;
          entered <= 1'b1;
        end else if (hello_result) begin
          last_kind <= KindRefuse;
          say_code <= hello_code;
          state <= StateLast;
          entered <= 1'b1;
          if (hello_by_peer) begin
            entered <= 1'b0;
            state <= StateClosing;
            if (upstream && !refusal_passes && hello_code != RefuseInUse) stopped <= 1'b1;
          end else if (hello_good) begin
            if (!fits) say_code <= RefuseMalformed;
            else if (!upstream && (hello_member || !admits)) say_code <= RefuseBusy;
            else begin
              renewed <= !resumes;
              digests <= hello.digests;
              if (!resumes) begin
                link <= 1'b0;
                state <= StateRenewing;
                entered <= 1'b0;
              end else begin
                state <= upstream ? StateOpen : StateAnswering;
                resumptions <= resumptions + 32'd1;
              end
              said_sequence <= next;
              said_acknowledge <= expected;
              said_oldest <= oldest;
              said_session <= id;
            end
          end
        end
      end
      StateRenewing: begin
        if (link_start) begin
          link <= 1'b1;
          id <= upstream ? hello.session : (entropy[63:0] == 64'd0 ? 64'd1 : entropy[63:0]);
          secret <= upstream ? hello.secret : entropy[191:64];
          has_secret <= 1'b1;
          peer <= hello.instance_;
          {heard, resumed} <= '0;
          expected <= 32'd0;
          received_at <= 64'd0;
          resets_pending <= 5'd0;
          resets_todo <= 5'd0;
          payload_max <= hello.max_payload[12:2];
          stamped <= cfg_stamps || hello.stamps;
          hold <= of_millis(hello.hold < cfg_hold_ms ? hello.hold : cfg_hold_ms);
          ping_interval <= peer_ping < {24'd0, cfg_ping} ? peer_ping : {24'd0, cfg_ping};
          said_sequence <= 32'd0;
          said_acknowledge <= 32'd0;
          said_oldest <= 32'd0;
          said_session <= entropy[63:0] == 64'd0 ? 64'd1 : entropy[63:0];
          state <= upstream ? StateOpen : StateAnswering;
          entered <= 1'b1;
        end
      end
      StateAnswering: begin
        if (lost) state <= StateIdle;
        else if (due[TimerHandshake]) state <= StateClosing;
        else if (!entered && !say_busy) begin
          state <= StateOpen;
          entered <= 1'b1;
        end
      end
      StateOpen: begin
        if (ends_open) begin
          last_kind <= KindClose;
          say_code <= broken ? CloseProtocol : CloseOverrun;
          state <= StateLast;
          entered <= 1'b1;
        end else if (closed) state <= StateClosing;
        else if (loses) state <= lost ? StateIdle : StateClosing;
        else if (!run && !waits && tx_idle) begin
          last_kind <= KindClose;
          say_code <= CloseNormal;
          state <= StateLast;
          entered <= 1'b1;
        end
        said_sequence <= cursor;
        said_acknowledge <= expected;
      end
      StateLast: begin
        // A frame that has begun ends first.
        if (entered && !(tx_idle && !say_busy)) entered <= 1'b1;
        said_sequence <= said_sequence;
        if (lost) state <= StateIdle;
        else if (due[TimerHandshake] || (!entered && !say_busy && net_empty)) state <= StateClosing;
      end
      StateClosing: if (lost) state <= StateIdle;
      default: state <= StateIdle;
    endcase

    if (link_ends) begin
      link <= 1'b0;
      if (!upstream) has_secret <= 1'b0;
    end
    if (link) link_up <= link_up || state == StateOpen || state == StateAnswering;
    else if (drained) link_up <= 1'b0;

    // ---- Frames, and the next one that is due ----
    if (tx_heads) begin
      unacknowledged_frames <= 7'd0;
      unacknowledged_bytes <= 18'd0;
      acknowledge_due <= 1'b0;
    end
    if (credit_taken) {acknowledge_due, credit_must} <= '0;
    if (ping_taken) begin
      ping_due <= 1'b0;
      ping_awaited <= 1'b1;
      ping_sent_at <= now;
    end
    if (pong_taken) pong_due <= 1'b0;
    if (state == StateOpen && due[TimerPing]) begin
      ping_due <= 1'b1;
      if (pings_quick != 3'd0) pings_quick <= pings_quick - 3'd1;
    end
    if (state == StateOpen && due[TimerAcknowledge]) acknowledge_due <= 1'b1;
    if (in_order) heard <= 1'b1;
    if (good_frame) begin
      unique case (frame_kind)
        KindPing: begin
          pong_due <= 1'b1;
          pong_sent_at <= {frame_body[0], frame_body[1]};
          pong_received_at <= now;
        end
        KindPong:
        if (ping_awaited && {frame_body[0], frame_body[1]} == ping_sent_at) begin
          ping_awaited <= 1'b0;
          round_trip <= now - ping_sent_at - ({frame_body[4], frame_body[5]} -
                                             {frame_body[2], frame_body[3]});
        end
        default: ;
      endcase
      if (numbered) begin
        expected <= expected + 32'd1;
        received_at <= now;
        unacknowledged_frames <= (tx_heads ? 7'd0 : unacknowledged_frames) + 7'd1;
        unacknowledged_bytes <= (tx_heads ? 18'd0 : unacknowledged_bytes) +
                                {2'd0, frame_length} + 18'd12;
        if (!tx_heads && (unacknowledged_frames + 7'd1 >= AcknowledgeFrames ||
            unacknowledged_bytes + {2'd0, frame_length} + 18'd12 >= AcknowledgeBytes))
          acknowledge_due <= 1'b1;
      end
    end

    // ---- Resets ----
    if (reset_numbered) resets_todo <= resets_todo - 5'd1;
    if (hot_reset && upstream && link && !overrun) begin
      resets_pending <= resets_pending + 5'd1;
      resets_todo <= resets_todo + (reset_numbered ? 5'd0 : 5'd1);
    end
    if (good_frame && frame_kind == KindReset) begin
      if (!upstream) resets_pending <= resets_pending + (reset_delivered ? 5'd0 : 5'd1);
      else if (!hot_reset) resets_pending <= resets_pending - 5'd1;
      else resets_pending <= resets_pending;
    end else if (reset_delivered && !upstream && link) resets_pending <= resets_pending - 5'd1;
    if (reset_delivered && link) resets_todo <= resets_todo + (reset_numbered ? 5'd0 : 5'd1);

    // ---- A connection begins or ends ----
    if (opens) begin
      pings_quick <= PingsQuick;
      redial_delay <= cfg_redial_min;
      credit_must <= !renewed;
      unacknowledged_frames <= 7'd0;
      unacknowledged_bytes <= 18'd0;
      if (!renewed) {resumed, heard} <= 2'b10;
    end
    if (redials) begin
      redial_delay <= redial_doubled < cfg_redial_min ? cfg_redial_min :
                      redial_doubled > cfg_redial_max ? cfg_redial_max : redial_doubled;
    end
    if (state != StateOpen) begin
      {ping_due, pong_due, ping_awaited, acknowledge_due} <= '0;
    end

    if (rst) begin
      state <= StateIdle;
      {entered, link, link_up, has_secret, stopped, credit_must} <= '0;
      {ping_due, pong_due, acknowledge_due, heard, resumed} <= '0;
      redial_delay <= cfg_redial_min;
      resumptions <= 32'd0;
      round_trip <= 64'd0;
      {resets_pending, resets_todo} <= '0;
      {expected, received_at} <= '0;
    end
  end

endmodule
