// Far ends, namespaces and hosts of running daemons, as farlane observe top shows them, with what
// they did in the last minutes.

import { html, useEffect, useRef, useState } from './library.js';
import { ask } from './api.js';
import { Card, Note } from './parts.js';
import { often, rate } from './words.js';
import { Chart, axis, line, room } from './chart.js';

/** How often the daemons are asked, in milliseconds, and how many answers are kept. */
const PAUSE = 1000;
const KEPT = 180;

/** Tables: what they show, a title, and their columns. */
const TABLES = [
  ['far_ends', 'Far ends', [['place', 'place'], ['link', 'link'], ['peer', 'peer'], ['round_trip', 'round trip'], ['commands_s', 'commands/s'], ['in_mb_s', 'in, MB/s'], ['out_mb_s', 'out, MB/s'], ['resumed', 'resumed']]],
  ['namespaces', 'Namespaces', [['of', 'of'], ['nsid', 'NSID'], ['reads_s', 'reads/s'], ['writes_s', 'writes/s'], ['read_mb_s', 'read, MB/s'], ['written_mb_s', 'written, MB/s'], ['p50', 'p50'], ['p99', 'p99'], ['errors', 'errors']]],
  ['hosts', 'Hosts', [['of', 'of'], ['host', 'host'], ['state', 'state'], ['queues', 'queues'], ['commands_s', 'commands/s'], ['read_mb_s', 'read, MB/s'], ['written_mb_s', 'written, MB/s'], ['errors', 'errors']]],
];

const WORDS = new Set(['place', 'link', 'peer', 'of', 'host', 'state']);

const sum = (rows, ...keys) => rows.reduce((all, row) => all + keys.reduce((of, key) => of + (Number(row[key]) || 0), 0), 0);

export function Live({ theme }) {
  const [now, setNow] = useState(null);
  const [error, setError] = useState(null);
  const [paused, setPaused] = useState(false);
  const history = useRef([]);
  const [data, setData] = useState([[], [], [], []]);
  useEffect(() => {
    if (paused) return undefined;
    let over = false;
    let timer;
    const look = async () => {
      try {
        const answer = await ask('live');
        if (over) return;
        setNow(answer);
        setError(null);
        if (answer.passed_s !== null && answer.passed_s < 10) {
          const namespaces = answer.namespaces;
          history.current = [...history.current, [Date.now(), sum(namespaces, 'reads_s'), sum(namespaces, 'writes_s'), sum(namespaces, 'read_mb_s') * 1e6, sum(namespaces, 'written_mb_s') * 1e6]].slice(-KEPT);
          const newest = history.current[history.current.length - 1][0];
          setData([0, 1, 2, 3, 4].map((column) => history.current.map((row) => (column === 0 ? (row[0] - newest) / 1000 : row[column]))));
        }
      } catch (refused) {
        if (!over) setError(refused.message);
      }
      if (!over) timer = setTimeout(look, PAUSE);
    };
    look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [paused]);
  const options = (words, first, second) => () => ({
    legend: { show: false }, cursor: { drag: { x: false, y: false }, sync: { key: 'live' } },
    scales: { x: { time: false, range: (_, low) => [Math.min(low ?? -60, -60), 0] }, y: { range: (_, low, high) => [0, Math.max(high ?? 1, 1) * 1.1] } },
    axes: [axis((value) => `${value < 0 ? '−' : ''}${Math.abs(value)}\u202fs`, { size: 26 }), axis(words, { size: room(62) })],
    series: [{}, line(first, '--line-1', { filled: true }), line(second, '--line-2', { filled: true })],
  });
  const legend = html`<span class="legend"><span><i style="background:var(--line-1)"></i>reads</span> <span><i style="background:var(--line-2)"></i>writes</span></span>`;
  const none = now && TABLES.every(([name]) => now[name].length === 0);
  return html`
    <div class="filters"><button type="button" aria-pressed=${String(paused)} onClick=${() => setPaused(!paused)}>${paused ? 'go on' : 'pause'}</button>
      <output>${paused ? 'paused' : 'every second'}</output></div>
    ${error && html`<${Note} kind="error">${error}<//>`}
    ${none && html`<div class="empty"><h2>No daemon of this user runs</h2><p>Start one, and it appears here: <code>farlane export --listen 127.0.0.1:4430 --ram 1GiB</code></p></div>`}
    ${now && !none && html`<div class="columns even">
      <${Card} title="Commands" aside=${legend}><${Chart} make=${options(often, 'reads', 'writes')} data=${[data[0], data[1], data[2]]} height=${170} theme=${theme} of="commands" label="commands a second in the last minutes" /><//>
      <${Card} title="Data" aside=${legend}><${Chart} make=${options(rate, 'read', 'written')} data=${[data[0], data[3] ?? [], data[4] ?? []]} height=${170} theme=${theme} of="data" label="bytes a second in the last minutes" /><//>
    </div>
    ${TABLES.filter(([name]) => now[name].length > 0).map(([name, title, columns]) => html`<${Card} key=${name} title=${title} aside=${html`<span class="muted">${now[name].length}</span>`}>
      <div class="scroll" tabindex="0" role="region" aria-label=${title}><table class="plain rows"><thead><tr>${columns.map(([key, head]) => html`<th scope="col" class=${WORDS.has(key) ? 'words' : ''}>${head}</th>`)}</tr></thead>
        <tbody>${now[name].map((row) => html`<tr>${columns.map(([key]) => html`<td class=${WORDS.has(key) ? 'words' : ''}>${key === 'link' || key === 'state' ? html`<span class=${`state ${row[key].split(' ')[0].replace(',', '')}`}>${row[key]}</span>` : row[key]}</td>`)}</tr>`)}</tbody></table></div><//>`)}`}`;
}
