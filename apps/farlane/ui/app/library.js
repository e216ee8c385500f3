// What all views are made with: elements, state, and the templates that make them.

import { h, render } from '../vendor/preact.js';
import htm from '../vendor/htm.js';

export * from '../vendor/hooks.js';
export { render };
export const html = htm.bind(h);
