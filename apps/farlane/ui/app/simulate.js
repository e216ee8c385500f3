// Scenarios: what a simulation predicts, and how the prediction moves when a value changes.

import { html, useEffect, useMemo, useRef, useState } from './library.js';
import { play, useAnswer } from './api.js';
import { Answered, Card, Choice, Facts, Input, Note, Select } from './parts.js';
import { bytes, change, count, large, percent, time } from './words.js';

/** Operations of a task, so that an answer comes at once, by default. */
const COUNT = 300;

/** A number with what follows it: 1Gbit/s, 16.2ms. */
const QUANTITY = /^([\d.]+)(\s*)([a-zA-Zµ/%]*)$/;

/** Units by what they measure, each in terms of the first. */
const UNITS = [
  { ns: 1, us: 1e3, 'µs': 1e3, ms: 1e6, s: 1e9 },
  { 'bit/s': 1, 'kbit/s': 1e3, 'Mbit/s': 1e6, 'Gbit/s': 1e9 },
  { B: 1, kB: 1e3, KiB: 1024, MB: 1e6, MiB: 1024 ** 2, GB: 1e9, GiB: 1024 ** 3 },
  { m: 1, km: 1e3 },
];

/** How many times as much one quantity is as another; 1 where they measure different things. */
function timesAs(text, original) {
  const [now, was] = [QUANTITY.exec(String(text)), QUANTITY.exec(String(original))];
  if (!now || !was) return 1;
  const units = UNITS.find((all) => all[now[3]] && all[was[3]]);
  const factor = now[3] === was[3] ? 1 : units ? units[now[3]] / units[was[3]] : 0;
  const times = (Number(now[1]) * factor) / Number(was[1]);
  return times > 0 && Number.isFinite(times) ? times : 1;
}

/** Values that scenarios often leave out, by what must be there for them. */
const USUAL = [
  ['link.', 'link.loss', '0'], ['pcie', 'pcie.payload', '256'], ['pcie', 'pcie.read_request', '512'], ['link.', 'switch.lookahead', 'true'],
];

/** A title for a path of keys. */
function title(path) {
  return path.split('.').map((key) => (/^\d+$/.test(key) ? String(Number(key) + 1) : key.replace(/_/g, ' '))).join(' ');
}

/** A value, which may be typed, and moved by a slider where it is a quantity. */
function Value({ path, original, value, onChange }) {
  const text = String(value);
  const found = QUANTITY.exec(String(original));
  const changed = text !== String(original);
  const slides = found && Number(found[1]) > 0 && (found[3] !== '' || typeof original === 'number') && !/seed|queues?$/.test(path);
  const ratio = slides ? Math.max(-2, Math.min(2, Math.log10(timesAs(text, original)))) : 0;
  const slide = (event) => {
    const factor = 10 ** Number(event.target.value);
    const exact = Number(found[1]) * factor;
    const whole = found[3] === '' || found[3] === 'B';
    onChange(Number(event.target.value) === 0 ? original : `${whole ? Math.max(1, Math.round(exact)) : Number(exact.toPrecision(3))}${found[3]}`);
  };
  return html`<div class=${`value ${changed ? 'changed' : ''}`}>
    ${typeof original === 'boolean'
      ? html`<label class="field"><span>${title(path)}</span><select value=${text} onChange=${(event) => onChange(event.target.value === 'true')}><option selected=${text === 'true'}>true</option><option selected=${text === 'false'}>false</option></select></label>`
      : html`<${Input} label=${title(path)} value=${text} width=${12} onChange=${(typed) => onChange(typed === '' ? original : typed)} />`}
    ${slides ? html`<input type="range" min="-2" max="2" step="0.05" value=${ratio} aria-label=${`${title(path)}, from a hundredth to a hundred times ${original}`} onInput=${slide} />` : html`<span></span>`}
    <button type="button" class="icon" aria-label=${`${title(path)} as it was`} title="as it was" disabled=${!changed} onClick=${() => onChange(original)}>↺</button>
  </div>`;
}

const QUANTILES = [['p50_ns', 'median'], ['mean_ns', 'mean'], ['p99_ns', 'p99'], ['p999_ns', 'p99.9'], ['max_ns', 'max']];


/** The tasks of a prediction and its streams, whose frames are their operations. */
const rows = (played) => [...played.tasks, ...played.streams.map((stream) => ({ ...stream, task: stream.stream, count: stream.received, failed: stream.lost }))];

/** The tasks of two predictions side by side, the first as a mark. */
function Tasks({ now, before }) {
  const [tasks, old] = [rows(now), before ? rows(before) : []];
  const most = Math.max(1, ...[...tasks, ...old].map((task) => task.p99_ns));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Tasks"><table class="plain tasks"><thead><tr><th scope="col">task</th>${QUANTILES.map(([key, name]) => html`<th scope="col">${name}</th>`)}<th scope="col">rate</th><th scope="col">change</th></tr></thead>
    <tbody>${tasks.map((task, at) => {
      const was = old[at];
      const moved = was && was.p50_ns > 0 ? task.p50_ns / was.p50_ns - 1 : null;
      return html`<tr key=${task.task}><th scope="row">${task.task}<small>${count(task.count)} times${task.failed ? `, ${count(task.failed)} failed` : ''}</small>
        <span class="range" title=${`median ${time(task.p50_ns)}, p99 ${time(task.p99_ns)}`}><i style=${{ left: 0, width: `${(task.p50_ns / most) * 100}%` }}></i><u style=${{ left: `${(task.p50_ns / most) * 100}%`, width: `${((task.p99_ns - task.p50_ns) / most) * 100}%` }}></u>${was && html`<s style=${{ left: `${(was.p50_ns / most) * 100}%` }} title=${`before: median ${time(was.p50_ns)}`}></s>`}</span></th>
        ${QUANTILES.map(([key]) => html`<td>${time(task[key])}</td>`)}<td>${task.bytes ? large(task.bits_per_second, 'bit/s') : '–'}</td>
        <td class=${moved > 0.005 ? 'longer' : moved < -0.005 ? 'shorter' : ''}>${moved === null ? '–' : change(moved)}</td></tr>`;
    })}</tbody></table></div>`;
}

/** A place without the rate in its name, which a change may have changed. */
const known = (place) => place.replace(/[\d.]+ [kMG]?bit\/s/, '');

/** The places of the path from the host to the device, each with its share of the time and, along the critical path, when it had it. */
function Places({ operation, before }) {
  const x = (ns) => `${(ns / Math.max(1, operation.latency_ns)) * 100}%`;
  const most = Math.max(...operation.places.map((place) => place.share_percent), 1e-9);
  const was = new Map(before?.places.map((place) => [known(place.place), place]) ?? []);
  return html`<ol class="places"><li class="titles" aria-hidden="true"><span>place</span><span>share</span><span></span><span class="number">time</span><span class="number was">change</span><div class="track"><span>0</span><span>${time(operation.latency_ns)}</span></div></li>${operation.places.map((place, at) => {
    const old = was.get(known(place.place));
    return html`<li key=${place.place}>
    <b title=${place.place}>${place.place}</b><span class="bar"><i style=${{ width: `${(place.share_percent / most) * 100}%`, background: `var(--place-${at % 8})` }}></i></span>
    <span class="number">${percent(place.share_percent / 100)}</span><span class="number">${time(place.length_ns)}</span><span class="number was">${old && old.length_ns !== place.length_ns ? change(place.length_ns / Math.max(1, old.length_ns) - 1) : ''}</span>
    <div class="track">${operation.segments.filter((segment) => segment.place === place.place).map((segment) => html`<i style=${{ left: x(segment.start_ns), width: x(segment.length_ns), background: `var(--place-${at % 8})` }}
      title=${`${segment.part}${segment.what ? `: ${segment.what}` : ''}, ${time(segment.length_ns)}${segment.packet ? `, after ${segment.packet}` : ''}`}></i>`)}</div></li>`;
  })}</ol>`;
}

function Scenario({ number, scenario, values, set }) {
  const counts = useMemo(() => {
    const tasks = new Set(scenario.values.map(({ path }) => /^task\.(\d+)\./.exec(path)?.[1]).filter((at) => at !== undefined));
    return Object.fromEntries([...tasks].map((at) => [`task.${at}.count`, COUNT]));
  }, [scenario]);
  const [changes, setChanges] = useState({});
  const [added, setAdded] = useState([]);
  const [percentile, setPercentile] = useState('50');
  const [state, setState] = useState({ before: null, now: null, error: null, waits: true });
  const under = useRef({ busy: false, next: null, abort: new AbortController() });
  /** Plays with these values; while one is under way, only the last of the others is kept. */
  const run = async (set, percentile, isFirst) => {
    const mine = under.current;
    if (mine.busy) {
      mine.next = [set, percentile, isFirst];
      return;
    }
    mine.busy = true;
    setState((last) => ({ ...last, waits: true }));
    try {
      const now = await play(`scenarios/${number}`, { set: { ...counts, ...set }, percentile: Number(percentile) }, mine.abort.signal);
      setState((last) => ({ before: isFirst ? now : last.before, now, error: null, waits: false }));
    } catch (error) {
      if (error.name === 'AbortError') return;
      setState((last) => ({ ...last, error: error.message, waits: false }));
    }
    mine.busy = false;
    if (mine.next) {
      const next = mine.next;
      mine.next = null;
      run(...next);
    }
  };
  useEffect(() => {
    run({}, '50', true);
    return () => under.current.abort.abort();
  }, []);
  const apply = (next) => {
    setChanges(next);
    run(next, percentile, false);
  };
  const alter = (path, original) => (value) => {
    const next = { ...changes };
    if (String(value) === String(original)) delete next[path];
    else next[path] = /^-?\d+$/.test(String(value)) ? Number(value) : value;
    apply(next);
  };
  const shown = scenario.values.filter(({ path }) => !/\.(kind|name)$/.test(path));
  const groups = new Map();
  const all = [...shown, ...added.map((path) => ({ path, value: changes[path] ?? '' }))];
  for (const one of all) {
    const group = /^(link|task|workload|load|fabric|ssd|host|pcie|switch)/.exec(one.path)?.[1] ?? 'other';
    groups.set(group, [...(groups.get(group) ?? []), one]);
  }
  const { now, before } = state;
  const operations = now?.operations ?? [];
  const at = Math.min(Number(values.task ?? 0) || 0, Math.max(0, operations.length - 1));
  const operation = operations[at];
  const old = before?.operations?.find((one) => one.task === operation?.task);
  return html`<div class="columns simulate">
    <${Card} title="Values" class="values" aside=${html`<button type="button" class="chip" disabled=${!Object.keys(changes).length} onClick=${() => { setAdded([]); apply({}); }}>all as they were</button>`}>
      ${[...groups].map(([group, list]) => html`<fieldset key=${group}><legend>${group}</legend>${list.map(({ path, value }) => html`<${Value} key=${path} path=${path.replace(`${group}.`, '')} original=${value} value=${changes[path] ?? value} onChange=${alter(path, value)} />`)}</fieldset>`)}
      <form class="add" onSubmit=${(event) => {
        event.preventDefault();
        const [path, value] = event.target.elements.pair.value.split('=').map((part) => part.trim());
        if (!path || !value) return;
        if (!shown.some((one) => one.path === path) && !added.includes(path)) setAdded([...added, path]);
        event.target.reset();
        apply({ ...changes, [path]: /^-?\d+$/.test(value) ? Number(value) : value === 'true' ? true : value === 'false' ? false : value });
      }}><label class="field"><span>set another</span><input name="pair" type="text" placeholder="link.loss=0.001" list="usual" autocomplete="off" spellcheck=${false} /></label>
        <datalist id="usual">${USUAL.map(([, path, value]) => html`<option value=${`${path}=${value}`} />`)}</datalist><button type="submit">set</button></form>
      <p class="hint">Tasks have ${count(COUNT)} operations here, so that answers come at once. Change count for more.</p>
    <//>
    <div class="results" aria-busy=${String(state.waits)}>
      ${state.error && html`<${Note} kind="error">${state.error}<//>`}
      ${now && html`<${Card} title="Prediction" aside=${state.waits ? html`<span class="busy">simulating</span>` : html`<span class="muted">${count(now.events)} events${now.boot_ns ? `, up after ${time(now.boot_ns)}` : ''}</span>`}><${Tasks} now=${now} before=${before} /><//>`}
      ${operation && html`<${Card} title="Where the time goes" aside=${html`<div class="pair">
        ${operations.length > 1 && html`<${Select} label="task" value=${at} options=${operations.map((one, place) => [place, one.task])} onChange=${(task) => set({ task })} />`}
        <${Choice} label="which operation" value=${percentile} options=${[['50', 'median'], ['99', 'p99'], ['100', 'slowest']]} onChange=${(next) => { setPercentile(next); run(changes, next, false); }} /></div>`}>
        <p class="what"><b>${operation.operation}</b>, one of ${count(operation.count)}: ${time(operation.latency_ns)}</p>
        <${Places} operation=${operation} before=${percentile === '50' ? old : null} />
      <//>`}
      ${!now && !state.error && html`<div class="waiting" role="status"><span class="hidden">simulating</span></div>`}
    </div></div>`;
}

export function Simulate({ values, set, captures }) {
  const answer = useAnswer('scenarios');
  const list = answer.answer?.scenarios ?? [];
  const at = Math.min(Number(values.scenario ?? 0) || 0, Math.max(0, list.length - 1));
  return html`<${Answered} of=${answer}>${() => html`
    <div class="filters" role="group" aria-label="scenario">
      <${Select} label="scenario" value=${at} options=${list.map((one, place) => [place, one.name])} onChange=${(scenario) => set({ scenario, task: null })} />
      <p class="about">${list[at].about}</p></div>
    <${Scenario} key=${at} number=${at} scenario=${list[at]} values=${values} set=${set} />`}<//>`;
}
