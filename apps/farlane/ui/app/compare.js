// Two captures, step by step, with the differences that exceed chance.

import { html, useState } from './library.js';
import { useAnswer } from './api.js';
import { Answered, Card, Check, Choice, Note, Select } from './parts.js';
import { change, count, percent, time } from './words.js';
import { Histogram, Reading } from './distributions.js';

/** The name of a step in requests for histograms. */
const asked = (step) => (step === 'until completion' ? 'latency' : step);

/** A bar from the middle: longer to the right, shorter to the left. */
function Difference({ share, strong }) {
  if (share === null) return html`<span class="difference"></span>`;
  // Half as long and twice as long are equally far from the middle.
  const size = Math.min(1, Math.abs(Math.log2(Math.max(1 + share, 1 / 16))) / 4);
  return html`<span class=${`difference ${share > 0 ? 'longer' : 'shorter'} ${strong ? 'strong' : ''}`} aria-hidden="true"><i style=${{ width: `${size * 50}%` }}></i></span>`;
}

function Rows({ rows, names, chosen, onChoose }) {
  let command = null;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Medians"><table class="compare"><thead><tr><th scope="col">step</th><th scope="col" class="number">${names[0]}</th><th scope="col" class="number">${names[1]}</th>
    <th scope="col" class="number">difference</th><th scope="col" class="bar" aria-hidden="true"></th><th scope="col" class="number wide" title="how often one of the second capture takes longer than one of the first">longer</th><th scope="col"><span class="hidden">more than chance</span></th></tr></thead>
    <tbody>${rows.map((row) => {
      const begins = row.command !== command;
      command = row.command;
      const key = `${row.command} ${row.step}`;
      return html`${begins && html`<tr class="group"><th colspan="7" scope="rowgroup">${row.command} <small>${count(row.first_ns.count)} and ${count(row.second_ns.count)}</small></th></tr>`}
        <tr key=${key} class=${key === chosen ? 'selected' : ''} onClick=${() => onChoose(row)}>
          <th scope="row"><button type="button" class="link" aria-pressed=${String(key === chosen)}>${row.step}</button></th>
          <td>${row.first_ns.count ? time(row.first_ns.p50) : '–'}</td><td>${row.second_ns.count ? time(row.second_ns.p50) : '–'}</td>
          <td class=${row.significant ? (row.difference > 0 ? 'longer' : 'shorter') : ''}>${change(row.difference)}</td>
          <td class="bar"><${Difference} share=${row.difference} strong=${row.significant} /></td>
          <td class="wide">${row.first_ns.count && row.second_ns.count ? percent(row.second_longer, 0) : '–'}</td>
          <td>${row.significant ? html`<abbr title=${`chance makes such a difference once in ${row.chance > 0 ? count(Math.round(1 / row.chance)) : 'very many'} times`}>★</abbr>` : ''}</td></tr>`;
    })}</tbody></table></div>`;
}

export function Compare({ captures, values, set, theme }) {
  const ready = captures.map((capture, at) => [at, capture.name, capture.state]).filter(([, , state]) => state === 'ready');
  const first = Number(values.first ?? ready[0]?.[0] ?? 0);
  const second = Number(values.second ?? ready.find(([at]) => at !== first)?.[0] ?? first);
  const filter = values.three_sigma === '1';
  const log = values.scale !== 'linear';
  const pair = `${first},${second}`;
  const enough = ready.length > 1;
  const answer = useAnswer(enough && 'compare', { captures: pair, three_sigma: filter });
  const rows = answer.answer?.rows ?? [];
  const most = rows.reduce((best, row) => (row.step === 'until completion' && row.first_ns.count * row.second_ns.count > (best ? best.first_ns.count * best.second_ns.count : 0) ? row : best), null);
  const chosen = rows.find((row) => `${row.command} ${row.step}` === values.row) ?? most;
  const histogram = useAnswer(chosen && 'histogram', { captures: pair, kind: chosen?.command, of: chosen && asked(chosen.step), three_sigma: filter });
  const [bin, setBin] = useState(null);
  if (!enough) {
    const waits = captures.some((capture) => capture.state === 'reading');
    return html`<div class="empty"><h2>${waits ? 'The captures are still being read' : 'One capture has nothing beside it'}</h2>
      <p>Name two: <code>farlane observe ui direct.pcapng tunnelled.pcapng</code>. Farlane compares each step, and says which differences are more than chance.</p></div>`;
  }
  const options = ready.map(([at, name]) => [at, name]);
  const names = [first, second].map((at) => captures[at]?.name ?? '');
  const labels = names[0] === names[1] ? ['first', 'second'] : names;
  return html`
    <form class="filters" aria-label="choice of the comparison" onSubmit=${(event) => event.preventDefault()}>
      <${Select} label="first" value=${first} options=${options} onChange=${(first) => set({ first })} />
      <button type="button" class="icon" aria-label="exchange the two" title="exchange" onClick=${() => set({ first: second, second: first })}>⇄</button>
      <${Select} label="second" value=${second} options=${options} onChange=${(second) => set({ second })} />
      <${Choice} label="scale" value=${log ? 'log' : 'linear'} options=${[['log', 'logarithmic'], ['linear', 'linear']]} onChange=${(scale) => set({ scale: scale === 'log' ? null : scale })} />
      <${Check} label="within 3 σ" value=${filter} onChange=${(on) => set({ three_sigma: on ? '1' : null })} />
    </form>
    <${Answered} of=${answer}>${() => (rows.length ? html`<div class="columns even">
      <${Card} title="Medians of each step"><${Rows} rows=${rows} names=${labels} chosen=${chosen && `${chosen.command} ${chosen.step}`} onChoose=${(row) => set({ row: `${row.command} ${row.step}` })} />
        <p class="hint">★ chance explains the difference in less than 1 % of such tables (Mann and Whitney, with Bonferroni’s correction). Longer: how often one of the second capture takes longer than one of the first.</p><//>
      ${chosen && html`<${Card} title=${`${chosen.command}: ${chosen.step}`} aside=${html`<span class="legend">${labels.map((name, at) => html`<span><i style=${{ background: `var(--line-${at + 1})` }}></i>${name}</span>`)}</span>`}>
        <${Answered} of=${histogram}>${(found) => html`<${Histogram} answer=${found} names=${labels} log=${log} theme=${theme} of=${`${pair} ${chosen.command} ${chosen.step} ${filter}`} onBin=${setBin} />
          <${Reading} answer=${found} bin=${bin} names=${labels} />`}<//><//>`}
    </div>` : html`<${Note}>Neither capture has an NVMe command.<//>`)}<//>`;
}
