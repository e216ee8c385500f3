// Questions to the server, whose address is the page's own.

import { useEffect, useState } from './library.js';

const base = new URL('api/', document.baseURI);

/** Why the server refused, in its words. */
export class Refused extends Error {}

async function answered(response) {
  const answer = await response.json().catch(() => null);
  if (!response.ok) {
    const error = answer?.error;
    throw new Refused([error?.message ?? `the server answered ${response.status}`, error?.help].filter(Boolean).join('. '));
  }
  return answer;
}

async function send(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Refused('farlane does not answer: has it ended?');
  }
  return answered(response);
}

/** The address of a question. */
function question(path, values = {}) {
  const address = new URL(path, base);
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== '' && value !== false) {
      address.searchParams.set(name, value === true ? '1' : String(value));
    }
  }
  return address.href;
}

export function ask(path, values, signal) {
  return send(question(path, values), { signal });
}

export function play(path, body, signal) {
  const headers = { 'Content-Type': 'application/json' };
  return send(question(path), { method: 'POST', headers, body: JSON.stringify(body), signal });
}

/**
 * The answer to a question that a view asks: `{ answer, error, waits }`. While a changed question
 * is under way, the last answer stays. Without a path nothing is asked.
 */
export function useAnswer(path, values) {
  const address = path ? question(path, values) : null;
  const [state, setState] = useState({ answer: null, error: null, address: null });
  useEffect(() => {
    if (!address) {
      setState({ answer: null, error: null, address });
      return undefined;
    }
    const abort = new AbortController();
    send(address, { signal: abort.signal }).then(
      (answer) => setState({ answer, error: null, address }),
      (error) => error.name !== 'AbortError' && setState({ answer: null, error: error.message, address }),
    );
    return () => abort.abort();
  }, [address]);
  return { answer: state.answer, error: state.error, waits: state.address !== address };
}
