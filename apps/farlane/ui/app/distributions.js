// Distributions of times: a histogram, and the share of commands that take longer.

import { html, useMemo, useState } from './library.js';
import { useAnswer } from './api.js';
import { Answered, Card, Check, Choice, Note, Select, quantiles } from './parts.js';
import { count, large, mark, percent, time } from './words.js';
import { Chart, axis, decades, line, powersOfTen, steps } from './chart.js';

/** Columns for charts: where bins begin, how many are in each, and the share that is longer. */
export function columns({ bounds_ns: bounds, counts }, shared = false) {
  const starts = bounds.map((bound) => Math.max(bound, 0.5));
  const totals = counts.map((of) => of.reduce((sum, value) => sum + value, 0));
  // Two distributions are compared by shares.
  const heights = counts.map((of, at) => [...of.map((value) => (shared ? value / Math.max(1, totals[at]) : value)), null]);
  const longer = counts.map((of, at) => {
    let left = totals[at];
    return [...of, 0].map((value) => {
      const share = left / Math.max(1, totals[at]);
      left -= value;
      return share > 0 ? share : null;
    });
  });
  return { starts, heights, longer, totals };
}

const COLOURS = ['--line-1', '--line-2'];

/** A number with one digit, not above `value`: where marks of a logarithmic axis begin. */
function floor(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return Math.floor(Math.max(value, 1) / power) * power;
}

function scales(log, y) {
  const range = (_, least, most) => (log ? [floor(least), Math.max(most, floor(least) * 1.5)] : least === most ? [least * 0.9, most * 1.1 + 1] : [least, most]);
  return { x: { time: false, distr: log ? 3 : 1, range }, y };
}

/** Marks of a logarithmic axis: those at powers of ten, and 2 and 5 where there is room. */
function powers(plot, splits) {
  const { min, max } = plot.scales.x;
  const decades = Math.log10(max / Math.max(min, 1e-9));
  const wanted = decades * 130 > plot.width / 3 ? [1] : decades > 0.9 ? [1, 2, 5] : null;
  const of = (value) => Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9));
  return splits.map((value) => (value > 0 && (!wanted || wanted.includes(of(value))) ? mark(value) : ''));
}

/** A histogram above the share that is longer; both under one cursor. */
export function Histogram({ answer, names, log: wanted, theme, of, onBin }) {
  const { bounds_ns: bounds } = answer;
  // Within a factor of two, both scales look alike, and the linear one has better marks.
  const log = wanted && bounds[bounds.length - 1] > 2 * Math.max(bounds[0], 1);
  const { starts, heights, longer } = useMemo(() => columns(answer, names.length > 1), [answer, names.length]);
  const shared = names.length > 1;
  const cursor = { sync: { key: 'distribution' }, drag: { x: false, y: false }, points: { show: false } };
  const x = (more) => ({ ...axis(mark, more), values: log ? powers : (_, splits) => splits.map((value) => mark(value)), space: 56 });
  const hooks = { setCursor: [(plot) => onBin?.(plot.cursor.idx)] };
  const bars = () => ({
    legend: { show: false }, cursor, hooks, scales: scales(log, { range: (_, least, most) => [0, Math.max(most, shared ? 0.01 : 1) * 1.05] }),
    axes: [x({ size: 28 }), axis(shared ? (value) => percent(value, 0) : (value) => large(value))],
    series: [{}, ...names.map((name, at) => line(name, COLOURS[at], { filled: true, paths: steps() }))],
  });
  const tails = () => ({
    legend: { show: false }, cursor, hooks, scales: scales(log, { distr: 3, range: (_, least) => decades(Math.min(0.01, least ?? 0.01), 0.9, [0.01, 1]) }),
    axes: [x({ size: 28 }), axis((value) => percent(value, Math.max(0, -2 - Math.floor(Math.log10(value) + 1e-9))), powersOfTen())],
    series: [{}, ...names.map((name, at) => line(name, COLOURS[at], { paths: steps() }))],
  });
  const shape = `${of} ${log} ${names.join()}`;
  return html`<h3>${shared ? 'share of each capture' : 'commands'} by time</h3>
    <${Chart} make=${bars} data=${[starts, ...heights]} height=${220} theme=${theme} of=${shape} label="histogram of times" />
    <h3>share that takes longer</h3>
    <${Chart} make=${tails} data=${[starts, ...longer]} height=${170} theme=${theme} of=${shape} label="share of commands that take longer" />`;
}

/** The value under the cursor, in words. */
export function Reading({ answer, bin, names }) {
  const { longer } = useMemo(() => columns(answer, false), [answer]);
  if (bin === null || bin === undefined || bin >= answer.bounds_ns.length - 1) return html`<p class="reading">Point at a bin to read it.</p>`;
  const [from, to] = [answer.bounds_ns[bin], answer.bounds_ns[bin + 1]];
  return html`<p class="reading" aria-live="off"><b>${time(from)} to ${time(to)}</b>${names.map((name, at) => html`<span>${names.length > 1 ? `${name}: ` : ''}${count(answer.counts[at][bin])} commands; ${percent(longer[at][bin] ?? 0, 3)} take ${time(from)} or longer</span>`)}</p>`;
}

export function Distributions({ number, values, set, theme }) {
  const kinds = useAnswer(`captures/${number}/kinds`);
  const list = kinds.answer?.kinds ?? [];
  const usual = list.reduce((best, kind) => (kind.count > (best?.count ?? 0) ? kind : best), null);
  const kind = list.find((one) => one.command === values.kind) ?? usual;
  const what = values.of ?? 'latency';
  const log = values.scale !== 'linear';
  const filter = values.three_sigma === '1';
  const histogram = useAnswer(kind && 'histogram', { captures: number, kind: kind?.command, of: what, three_sigma: filter });
  const [bin, setBin] = useState(null);
  const steps = kind?.steps.map((step) => [step.step, step.step]) ?? [];
  return html`<${Answered} of=${kinds}>${() => (kind ? html`
    <form class="filters" aria-label="choice of the drawing" onSubmit=${(event) => event.preventDefault()}>
      <${Select} label="command" value=${kind.command} options=${list.map((one) => [one.command, `${one.command} (${count(one.count)})`])} onChange=${(kind) => set({ kind })} />
      <${Select} label="time" value=${what} options=${[['latency', 'until completion'], ['whole', 'until the last packet'], ...steps]} onChange=${(of) => set({ of })} />
      <${Choice} label="scale" value=${log ? 'log' : 'linear'} options=${[['log', 'logarithmic'], ['linear', 'linear']]} onChange=${(scale) => set({ scale: scale === 'log' ? null : scale })} />
      <${Check} label="within 3 σ" value=${filter} onChange=${(on) => set({ three_sigma: on ? '1' : null })} />
    </form>
    <${Answered} of=${histogram}>${(answer) => html`<div class="columns"><${Card} title=${`${kind.command}: ${what === 'latency' ? 'until completion' : what === 'whole' ? 'until the last packet' : what}`}>
      <${Histogram} answer=${answer} names=${[kind.command]} log=${log} theme=${theme} of=${`${number} ${kind.command} ${what} ${filter}`} onBin=${setBin} />
      <${Reading} answer=${answer} bin=${bin} names=${[kind.command]} />
    <//><${Card} title="Quantiles" class="narrow"><table class="plain"><tbody>${quantiles(answer.times_ns[0]).map(([name, value]) => html`<tr><th scope="row">${name}</th><td>${value}</td></tr>`)}</tbody></table><//></div>`}<//>`
    : html`<${Note}>The capture has no NVMe command.<//>`)}<//>`;
}
