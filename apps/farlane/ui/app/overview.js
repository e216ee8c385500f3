// What a capture has, and the map of the path: where the time of its commands went.

import { html, useMemo } from './library.js';
import { useAnswer } from './api.js';
import { Answered, Card, Choice, Divided, Facts, Note, Select, stepColour } from './parts.js';
import { bytes, count, large, mark, percent, rate, time } from './words.js';
import { Chart, axis, line } from './chart.js';

/** What the packet of a step does, for the map. */
const MEANING = {
  'command capsule': 'the host sends the command',
  doorbell: 'the host rings the submission queue',
  'entry fetch': 'the device asks for the entry',
  entry: 'the host’s memory answers with the entry',
  'list fetch': 'the device asks for the list of pages',
  list: 'the host’s memory answers with the list',
  R2T: 'the controller asks for the data',
  data: 'the device writes data, or asks for them',
  'data arrived': 'the host’s memory answers with data',
  completion: 'the device posts the completion',
  interrupt: 'the device interrupts the host',
  'head doorbell': 'the host has taken the completion',
};

/** Steps behind the completion, for which no command waits. */
const AFTER = new Set(['interrupt', 'head doorbell']);

/** The steps of a kind of command, with shares of the chosen ones: all of them, or those until the completion. */
function shared(kind, until) {
  const counts = (step) => until !== 'completion' || !AFTER.has(step.step);
  const all = kind.steps.reduce((sum, step) => sum + (counts(step) ? step.share : 0), 0) || 1;
  return kind.steps.map((step) => ({ ...step, counts: counts(step), share: counts(step) ? step.share / all : 0 }));
}

/** Steps as arrows between the two ends. */
function Ladder({ kind }) {
  const most = Math.max(...kind.steps.map((step) => step.share), 1e-9);
  return html`<div class="ladder" role="table" aria-label="steps">
    <div class="row ends" role="row">
      <span class="lane" role="columnheader"><b>Host</b><b>Device</b></span>
      <span role="columnheader" class="what">step</span><span role="columnheader" class="number">median</span><span role="columnheader" class="number">p99</span>
      <span role="columnheader" class="number">share</span><span role="columnheader" class="bar"></span>
    </div>
    ${kind.steps.map((step) => html`<div class=${`row ${step.counts ? '' : 'after'}`} role="row" key=${step.step} title=${MEANING[step.step]}>
      <span class=${`lane ${step.way}`} role="cell" aria-label=${step.way === 'down' ? 'to the device' : 'to the host'}><i style=${{ '--colour': stepColour(step.step) }}></i></span>
      <span class="what" role="cell">${step.step}<small>${MEANING[step.step]}</small></span>
      <span class="number" role="cell">${time(step.ns.p50)}</span><span class="number" role="cell">${time(step.ns.p99)}</span>
      <span class="number" role="cell">${step.counts ? percent(step.share) : '–'}</span>
      <span class="bar" role="cell"><i style=${{ width: `${(step.share / most) * 100}%`, background: stepColour(step.step) }}></i></span>
    </div>`)}
  </div>`;
}

/** Where the time passes: on the host's side of the capture, or on the device's. */
function Sides({ kind }) {
  const side = (way) => kind.steps.filter((step) => step.way === way);
  const sum = (steps) => steps.reduce((all, step) => all + step.share, 0);
  // A packet that comes from the device ends a time on the device's side of the capture.
  const [host, far] = [side('down'), side('up')];
  return html`<div class="sides">
    <div class="side" style=${{ flexGrow: Math.max(sum(host), 0.16) }}><b>${percent(sum(host))}</b><span>host</span></div>
    <div class="point" title="where the packets were captured"><span>capture</span></div>
    <div class="side far" style=${{ flexGrow: Math.max(sum(far), 0.16) }}><b>${percent(sum(far))}</b><span>link and device</span></div>
  </div>
  <${Divided} label="share of each step" parts=${[...host, ...far].map((step) => ({ name: step.step, share: step.share, colour: stepColour(step.step) }))} />`;
}

function Path({ kinds, values, set, go }) {
  const usual = kinds.reduce((best, kind, at) => (kind.count > kinds[best].count ? at : best), 0);
  const at = kinds[values.kind] ? Number(values.kind) : usual;
  const until = values.until === 'end' ? 'end' : 'completion';
  const kind = { ...kinds[at], steps: shared(kinds[at], until) };
  const options = kinds.map((one, index) => [index, `${one.command} (${count(one.count)})`]);
  const aside = options.length > 4
    ? html`<${Select} label="command" value=${at} options=${options} onChange=${(kind) => set({ kind })} />`
    : html`<${Choice} label="command" value=${at} options=${options} onChange=${(kind) => set({ kind })} />`;
  const span = html`<${Choice} label="which time" value=${until} options=${[['completion', 'until completion'], ['end', 'until the last packet']]} onChange=${(next) => set({ until: next === 'end' ? next : null })} />`;
  return html`<${Card} title="Where the time goes" class="path" aside=${html`${span}${aside}`}>
    <${Facts} rows=${[
      ['commands', count(kind.count)], ['completed after, median', time(kind.latency_ns.p50)], ['p99', time(kind.latency_ns.p99)],
      ['max', time(kind.latency_ns.max)], ['done after, mean', time(kind.whole_ns.mean)],
    ]} />
    <${Sides} kind=${kind} />
    <${Ladder} kind=${kind} />
    ${kind.dominates && html`<p class="advice">${kind.dominates}.</p>`}
    <footer><a href="#" onClick=${(event) => { event.preventDefault(); go('commands', { kind: at }); }}>List these commands</a>
      <a href="#" onClick=${(event) => { event.preventDefault(); go('distributions', { kind: kind.command }); }}>Distribution of their times</a></footer>
  <//>`;
}

/** Packets and depth over the whole capture. */
function Sketch({ number, theme, go }) {
  const series = useAnswer(`captures/${number}/series`, { bins: 300 });
  const data = useMemo(() => {
    if (!series.answer) return null;
    const { bins, width_ns: width, frames, depth } = series.answer;
    const at = Array.from({ length: bins }, (_, bin) => (bin + 0.5) * width);
    const all = at.map((_, bin) => Object.values(frames).reduce((sum, of) => sum + of[bin], 0) / (width / 1e9));
    return [at, all, depth];
  }, [series.answer]);
  const make = () => ({
    legend: { show: false }, cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false }, depth: { range: (_, low, high) => [0, Math.max(high, 1)] }, y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
    axes: [axis(mark, { size: 28 }), axis((value) => large(value)), axis((value) => large(value), { scale: 'depth', side: 1, grid: { show: false } })],
    series: [{}, line('packets a second', '--line-1', { filled: true }), line('commands under way', '--line-2', { scale: 'depth' })],
  });
  return html`<${Card} title="Over time" aside=${html`<span class="legend"><span><i style="background:var(--line-1)"></i>packets a second</span><span><i style="background:var(--line-2)"></i>commands under way</span></span>`}>
    <${Answered} of=${series}>${() => data && html`<${Chart} make=${make} data=${data} height=${170} theme=${theme} of=${number} label="packets a second and commands under way, over time" />`}<//>
    <footer><a href="#" onClick=${(event) => { event.preventDefault(); go('time'); }}>Look closer</a></footer>
  <//>`;
}

/** Counts that are worth a look where they are not 0. */
function doubts(summary) {
  const of = summary.statistics;
  return [
    [of.gaps, 'times that bytes of a connection are missing, or are no PDU'],
    [of.unfinished, 'commands under way at the end'],
    [of.unexpected_completions, 'completions and data of no command of the capture'],
    [of.unanswered, 'requests without their last completion'],
    [of.orphan_completions, 'completions without their request'],
    [of.skipped.foreign, 'frames without a PCIe packet or PDU, or lines without an event'],
    [of.skipped.malformed, 'frames with a malformed packet'],
    [of.time_ran_back, 'packets with an earlier time than the one before'],
    [of.dropped, 'things without room, not followed'],
    [summary.unlisted, 'commands without room in the list'],
    [summary.without_packets, 'commands whose packets had no room'],
  ].filter(([value]) => value > 0);
}

export function Overview({ capture, number, values, set, go, theme }) {
  const kinds = useAnswer(`captures/${number}/kinds`);
  const { summary } = capture;
  const of = summary.statistics;
  const seconds = summary.span_ns / 1e9;
  const found = doubts(summary);
  return html`
    <${Card} title=${capture.name} class="summary">
      <${Facts} rows=${[
        ['file', bytes(capture.file_bytes), capture.path], ['span', time(summary.span_ns)],
        of.tlps > 0 && ['PCIe packets', count(of.tlps)], of.pdus > 0 && ['NVMe/TCP PDUs', count(of.pdus)],
        ['commands', count(summary.commands)], of.tlps > 0 && ['payload', bytes(of.bytes)],
        of.tlps > 0 && seconds > 0 && ['payload rate', rate(of.bytes / seconds)],
        ['confidence', of.confidence.toFixed(2), 'the share of the device’s packets, and of PDUs, that have a place in a command'],
        of.tlps > 0 && ['errors', count(of.errors), 'completions without success, except those of enumeration'],
        ['failed commands', count(of.failed)],
      ]} />
      ${found.length > 0 && html`<ul class="doubts">${found.map(([value, words]) => html`<li>${words}: <b>${count(value)}</b></li>`)}</ul>`}
    <//>
    <${Answered} of=${kinds}>${({ kinds }) => (kinds.length
      ? html`<${Path} kinds=${kinds} values=${values} set=${set} go=${go} />`
      : html`<${Note}>The capture has no NVMe command.<//>`)}<//>
    <${Sketch} number=${number} theme=${theme} go=${go} />`;
}
