// What happened over time: packets, bytes, depth and latency under one cursor, with zoom. The server
// sends as many bins as there is room for.

import { html, useEffect, useMemo, useRef, useState } from './library.js';
import { useAnswer } from './api.js';
import { Answered, Card, Select, useColumns, useKeys } from './parts.js';
import { count, large, mark, often, rate, time } from './words.js';
import { Chart, axis, decades, line, powersOfTen, room } from './chart.js';

/** The least stretch that is shown, in nanoseconds. */
const SPAN_MIN = 100;

const CLASSES = [['reads', '--line-1'], ['writes', '--line-2'], ['completions', '--line-3'], ['others', '--line-4'], ['segments', '--line-5'], ['foreign', '--muted']];

export function Time({ capture, number, values, set, go, theme }) {
  const whole = capture.summary.span_ns + 1;
  const from = Math.max(0, Math.min(Number(values.from ?? 0), whole - 1));
  const to = Math.max(from + 1, Math.min(Number(values.to ?? whole), whole));
  const bins = useColumns();
  const kinds = useAnswer(`captures/${number}/kinds`);
  const series = useAnswer(`captures/${number}/series`, { from: Math.floor(from), to: Math.ceil(to), bins, kind: values.kind });
  const view = useRef(null);
  view.current = { from, to };
  /** Shows another stretch, within the capture. */
  const show = (low, high) => {
    const length = Math.min(whole, Math.max(SPAN_MIN, high - low));
    const start = Math.max(0, Math.min(low, whole - length));
    const all = length >= whole;
    set({ from: all ? null : Math.floor(start), to: all ? null : Math.ceil(start + length) });
  };
  const zoom = (factor, middle = (from + to) / 2) => show(middle - (middle - from) * factor, middle + (to - middle) * factor);
  const pan = (share) => show(from + (to - from) * share, to + (to - from) * share);
  const all = () => set({ from: null, to: null });
  useKeys({
    '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), '−': () => zoom(2), 0: all,
    ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25), Escape: all,
  }, [from, to, whole]);
  const [bin, setBin] = useState(null);
  const seen = useRef(new Set());
  const answer = series.answer;
  const at = useMemo(() => answer && Array.from({ length: answer.bins }, (_, place) => answer.from_ns + (place + 0.5) * answer.width_ns), [answer]);
  const data = useMemo(() => {
    if (!answer) return null;
    const each = 1e9 / answer.width_ns;
    const rates = (column) => column.map((value) => value * each);
    // A class that was seen once stays, so that charts stay the same while they are zoomed.
    CLASSES.forEach(([name]) => answer.frames[name].some((value) => value > 0) && seen.current.add(name));
    const classes = CLASSES.filter(([name]) => seen.current.has(name));
    return {
      classes,
      packets: [at, ...classes.map(([name]) => rates(answer.frames[name]))],
      bytes: [at, rates(answer.bytes_down), rates(answer.bytes_up)],
      commands: [at, rates(answer.commands)],
      depth: [at, answer.depth],
      latency: [at, answer.latency_max_ns.map((value) => value || null), answer.latency_mean_ns.map((value) => value || null)],
    };
  }, [answer]);
  // A wheel zooms around the pointer; a drag selects; two fingers zoom.
  const onMake = (plot) => {
    const over = plot.over;
    const timeAt = (x) => plot.posToVal(x - over.getBoundingClientRect().left, 'x');
    over.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && Math.abs(event.deltaY) < Math.abs(event.deltaX)) return;
      event.preventDefault();
      const middle = timeAt(event.clientX);
      const factor = event.deltaY > 0 ? 1.25 : 0.8;
      const { from: low, to: high } = view.current;
      show(middle - (middle - low) * factor, middle + (high - middle) * factor);
    }, { passive: false });
    over.addEventListener('dblclick', all);
    let touches = null;
    const spots = (event) => [...event.touches].map((touch) => touch.clientX).sort((a, b) => a - b);
    over.addEventListener('touchstart', (event) => {
      if (event.touches.length === 2) touches = { spots: spots(event), ...view.current };
    }, { passive: true });
    over.addEventListener('touchmove', (event) => {
      if (!touches || event.touches.length !== 2) return;
      event.preventDefault();
      const [a, b] = spots(event);
      const [c, d] = touches.spots;
      const factor = Math.max(0.05, Math.min(20, (d - c) / Math.max(1, b - a)));
      const share = ((a + b) / 2 - over.getBoundingClientRect().left) / over.clientWidth;
      const length = (touches.to - touches.from) * factor;
      const middle = touches.from + ((c + d) / 2 - over.getBoundingClientRect().left) / over.clientWidth * (touches.to - touches.from);
      show(middle - length * share, middle + length * (1 - share));
    }, { passive: false });
    over.addEventListener('touchend', () => { touches = null; });
  };
  const options = (lines, words, more = {}) => () => ({
    legend: { show: false },
    cursor: { sync: { key: 'time' }, drag: { x: true, y: false, setScale: false }, points: { show: false } },
    scales: { x: { time: false, range: () => [view.current.from, view.current.to] }, y: more.y ?? { range: (_, low, high) => [0, Math.max(high ?? 1, 1) * 1.05] } },
    axes: [axis(mark, { size: 26, space: 70 }), axis(words, { size: room(62), ...(more.y ? powersOfTen() : {}) })],
    series: [{}, ...lines],
    hooks: {
      setSelect: [(plot) => {
        if (plot.select.width < 4) return;
        const low = plot.posToVal(plot.select.left, 'x');
        const high = plot.posToVal(plot.select.left + plot.select.width, 'x');
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        show(low, high);
      }],
      setCursor: [(plot) => setBin(plot.cursor.idx)],
    },
  });
  const legend = (rows) => html`<span class="legend">${rows.map(([name, colour, value]) => html`<span><i style=${{ background: `var(${colour})` }}></i>${name} <b>${value}</b></span>`)}</span>`;
  const of = (column) => (bin === null || bin === undefined || !column ? '' : column[bin]);
  const shown = (column, words) => (of(column) === '' || of(column) === undefined || of(column) === null ? '' : words(of(column)));
  const kindOptions = [['', 'all'], ...(kinds.answer?.kinds ?? []).map((one, place) => [place, one.command])];
  const shape = `${number}`;
  // Between bins without a command there is no latency to draw a line to.
  const dots = { points: { show: true, size: 3 }, width: 1 };
  return html`
    <div class="filters" role="group" aria-label="stretch of time">
      <div class="buttons"><button type="button" title="earlier (←)" aria-label="earlier" onClick=${() => pan(-0.5)}>‹</button><button type="button" title="later (→)" aria-label="later" onClick=${() => pan(0.5)}>›</button>
        <button type="button" title="closer (+)" aria-label="closer" onClick=${() => zoom(0.5)}>+</button><button type="button" title="further (−)" aria-label="further" onClick=${() => zoom(2)}>−</button>
        <button type="button" title="all (0)" disabled=${to - from >= whole} onClick=${all}>all</button></div>
      <${Select} label="commands" value=${values.kind ?? ''} options=${kindOptions} onChange=${(kind) => set({ kind })} />
      <button type="button" class="chip" onClick=${() => go('commands', { from: Math.floor(from), to: Math.ceil(to), kind: values.kind })}>list the commands begun here</button>
      <output>${time(from)} to ${time(to)} <small>(${time(to - from)}${answer ? `, ${time(answer.width_ns)} a bin${answer.exact ? '' : ', spread between marks'}` : ''})</small></output>
    </div>
    <${Answered} of=${series}>${() => data && html`<div class="stack">
      ${data.classes.length > 0 && html`<${Card} title="Packets" aside=${legend(data.classes.map(([name, colour], place) => [name, colour, shown(data.packets[place + 1], often)]))}>
        <${Chart} make=${options(data.classes.map(([name, colour]) => line(name, colour)), often)} data=${data.packets} height=${150} theme=${theme} of=${`${shape} ${data.classes.length}`} onMake=${onMake} label="packets a second" /><//>
      <${Card} title="Payload" aside=${legend([['to the device', '--line-1', shown(data.bytes[1], rate)], ['to the host', '--line-2', shown(data.bytes[2], rate)]])}>
        <${Chart} make=${options([line('to the device', '--line-1', { filled: true }), line('to the host', '--line-2', { filled: true })], rate)} data=${data.bytes} height=${130} theme=${theme} of=${shape} onMake=${onMake} label="bytes a second" /><//>`}
      <${Card} title="Commands completed" aside=${legend([['commands', '--line-3', shown(data.commands[1], often)]])}>
        <${Chart} make=${options([line('commands', '--line-3', { filled: true })], often)} data=${data.commands} height=${110} theme=${theme} of=${shape} onMake=${onMake} label="commands completed a second" /><//>
      <${Card} title="Queue depth" aside=${legend([['under way', '--line-4', shown(data.depth[1], (value) => value.toFixed(2))]])}>
        <${Chart} make=${options([line('under way', '--line-4', { filled: true })], (value) => large(value))} data=${data.depth} height=${110} theme=${theme} of=${shape} onMake=${onMake} label="commands under way" /><//>
      <${Card} title="Latency" aside=${legend([['mean', '--line-5', shown(data.latency[2], time)], ['max', '--line-2', shown(data.latency[1], time)]])}>
        <${Chart} make=${options([line('max', '--line-2', dots), line('mean', '--line-5', dots)], mark, { y: { distr: 3, range: (_, low, high) => decades(low, high, [1e3, 1e6]) } })} data=${data.latency} height=${150} theme=${theme} of=${shape} onMake=${onMake} label="latency until completion, mean and largest" /><//>
      <p class="hint">Drag to look closer, turn the wheel to zoom, double-click to see all. ${count(capture.summary.frames)} packets are in the capture.</p>
    </div>`}<//>`;
}
