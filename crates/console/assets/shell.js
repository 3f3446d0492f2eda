// What every page shares: live panels, actions, keys, theme and times. The server renders; this file keeps the page current.
'use strict';
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const meta = name => $(`meta[name="${name}"]`)?.content ?? '';
const stored = {
  get: name => {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  },
  set: (name, value) => {
    try {
      value === null ? localStorage.removeItem(name) : localStorage.setItem(name, value);
    } catch {
      /* not kept */
    }
  },
};
const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    name === 'class' ? (made.className = value) : made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// ---- Times: the server writes UTC; the reader may prefer the local zone.
let zone = stored.get('zone') === 'local' ? 'local' : 'utc';
const two = number => String(number).padStart(2, '0');
function clockText(ms, precision = 's') {
  const date = new Date(ms),
    utc = zone === 'utc';
  const part = name => (utc ? date[`getUTC${name}`]() : date[`get${name}`]());
  const day = `${part('FullYear')}-${two(part('Month') + 1)}-${two(part('Date'))}`;
  if (precision === 'day') return day;
  let text = `${two(part('Hours'))}:${two(part('Minutes'))}`;
  if (precision !== 'min') text += `:${two(part('Seconds'))}`;
  if (precision === 'ms') text += `.${String(part('Milliseconds')).padStart(3, '0')}`;
  return precision === 'full' ? `${day} ${text}` : text;
}
// Also the address of the node in commands to copy, which is the one of this page.
function showLocal(root) {
  for (const time of $$('time[data-ms]', root)) time.textContent = clockText(+time.dataset.ms, time.dataset.p);
  for (const name of $$('[data-zone]', root)) name.textContent = zone === 'utc' ? 'UTC' : 'local time';
  for (const address of $$('[data-address]', root)) address.textContent = location.origin;
}

// ---- Live panels. Nodes are changed in place, so that focus, scroll position and selection stay.
function morph(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) return from.replaceWith(to);
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  for (const { name } of [...from.attributes])
    if (!to.hasAttribute(name) && !(name === 'open')) from.removeAttribute(name);
  for (const { name, value } of [...to.attributes])
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  morphChildren(from, to);
}
function morphChildren(from, to) {
  const old = [...from.childNodes],
    wanted = [...to.childNodes];
  wanted.forEach((node, at) => (at < old.length ? morph(old[at], node) : from.append(node)));
  old.slice(wanted.length).forEach(node => node.remove());
}
const inUse = panel => {
  const active = document.activeElement,
    selection = getSelection();
  const typing = active && panel.contains(active) && /^(INPUT|TEXTAREA|SELECT)$/.test(active.nodeName);
  return typing || (selection && !selection.isCollapsed && panel.contains(selection.anchorNode));
};
function showPanel({ id, html }) {
  const panel = document.getElementById(id);
  if (!panel || inUse(panel)) return;
  const fresh = element('div');
  fresh.innerHTML = html;
  showLocal(fresh);
  morphChildren(panel, fresh);
  document.dispatchEvent(new CustomEvent('highwater:panel', { detail: id }));
}

let source = null,
  paused = false,
  retry = 0,
  lost = 0;
const isPaused = () => paused;
function connect() {
  clearTimeout(retry);
  if (source || paused || document.hidden || !meta('live')) return;
  source = new EventSource(`/console/live?page=${encodeURIComponent(location.pathname + location.search)}`);
  source.addEventListener('hello', event => {
    if (JSON.parse(event.data).version !== meta('version')) location.reload();
    clearTimeout(lost);
    $('#lost').hidden = true;
  });
  source.addEventListener('panel', event => showPanel(JSON.parse(event.data)));
  source.addEventListener('logout', () => location.assign(loginPath()));
  source.onerror = () => {
    clearTimeout(lost);
    lost = setTimeout(() => {
      $('#lost').hidden = false;
    }, 700);
    if (source?.readyState === EventSource.CLOSED) {
      disconnect();
      retry = setTimeout(probe, 2000);
    }
  };
}
const disconnect = () => {
  source?.close();
  source = null;
  clearTimeout(retry);
};
const loginPath = () => `/console/login?next=${encodeURIComponent(location.pathname + location.search)}`;
// A stream that was refused says no reason: a session that ended looks like a node that is gone.
async function probe() {
  const answer = await fetch('/console/session').catch(() => null);
  answer?.status === 401 ? location.assign(loginPath()) : connect();
}
function setPaused(now) {
  paused = now;
  $('#paused').hidden = !paused;
  paused ? disconnect() : connect();
  document.dispatchEvent(new CustomEvent('highwater:pause', { detail: paused }));
}
document.addEventListener('visibilitychange', () => (document.hidden ? disconnect() : connect()));
addEventListener('pagehide', disconnect);
addEventListener('pageshow', connect);

// ---- Calls of the API, with the session's token; errors have the text and code of the terminal.
async function call(method, path, body, more) {
  const headers = { 'x-highwater-csrf': meta('csrf'), ...more }, raw = body instanceof Blob;
  if (body !== undefined && !raw) headers['content-type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined || raw ? body : JSON.stringify(body) });
  } catch {
    throw { code: 'no_connection', message: 'no connection to the node', hint: 'try again when it answers' };
  }
  const text = await answer.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = { code: String(answer.status), message: text };
  }
  if (answer.status === 401) location.assign(loginPath());
  if (!answer.ok) throw value ?? { code: String(answer.status), message: answer.statusText };
  return value;
}
function toast(text, hint = '', bad = false) {
  const made = element(
    'div',
    { class: bad ? 'toast bad' : 'toast', role: bad ? 'alert' : 'status' },
    text,
    ...(hint ? [element('p', {}, hint)] : []),
  );
  $('#toasts').append(made);
  setTimeout(() => made.remove(), bad ? 12000 : 5000);
}
const errorText = error => (error.code ? `${error.message} (${error.code})` : String(error.message ?? error));
const copy = async text => {
  try {
    await navigator.clipboard.writeText(text);
    toast('Copied.');
  } catch {
    toast('The browser does not allow copying.', text, true);
  }
};

// A button: data-call="POST /api/.." [data-body='{..}'] [data-confirm="Stop the job?"] [data-done="Stopped."] [data-then="/path"].
async function act(button) {
  const { call: what, confirm: question, body, done, then } = button.dataset;
  if (question && !(await ask(question, button.textContent.trim(), button.classList.contains('danger')))) return;
  const [method, path] = what.split(' ');
  button.disabled = true;
  try {
    const answer = await call(method, path, body === undefined ? undefined : JSON.parse(body));
    finish(answer, done, then);
  } catch (error) {
    toast(errorText(error), error.hint, true);
  }
  button.disabled = false;
}
// {field} in the text is the field of the answer.
function finish(answer, done, then) {
  if (done) toast(done.replace(/\{(\w+)\}/g, (_, field) => answer?.[field] ?? ''));
  if (then) location.assign(then);
}
function ask(question, yes, danger) {
  const dialog = $('#ask');
  $('p', dialog).textContent = question;
  const button = $('button[value=yes]', dialog);
  button.textContent = yes;
  button.className = danger ? 'danger' : 'primary';
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise(resolve =>
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true }),
  );
}
// A form: data-call as above, {field} in the path is a field of the form; the others are the body. data-type="number|json|list|flag"
// says what a field is; an empty field is left out. data-result="id" shows the answer there instead of closing the dialog.
function formBody(form) {
  const body = {};
  for (const field of [...form.elements].filter(field => field.name && !field.disabled)) {
    const { type: kind } = field.dataset;
    if (field.type === 'radio' && !field.checked) continue;
    if (field.type === 'checkbox') {
      if (field.checked) body[field.name] = true;
      continue;
    }
    if (field.value === '' && kind !== 'text') continue;
    if (kind === 'number') body[field.name] = +field.value;
    else if (kind === 'json') {
      try {
        body[field.name] = JSON.parse(field.value);
      } catch (error) {
        throw { message: `${field.name}: ${error.message}` };
      }
    } else if (kind === 'list')
      body[field.name] = field.value
        .split(',')
        .map(part => part.trim())
        .filter(Boolean);
    else body[field.name] = field.value;
  }
  return body;
}
async function send(form, submitter) {
  const error = $('.field-error', form) ?? form.appendChild(element('p', { class: 'field-error', role: 'alert' }));
  error.textContent = '';
  try {
    const body = formBody(form),
      what = submitter?.dataset.call ?? form.dataset.call;
    const filled = what.replace(/\{(\w+)\}/g, (_, field) => {
      const value = body[field] ?? '';
      delete body[field];
      return encodeURIComponent(value);
    });
    const [method, path] = filled.split(' ');
    if (
      submitter?.dataset.confirm &&
      !(await ask(submitter.dataset.confirm, submitter.textContent.trim(), submitter.classList.contains('danger')))
    )
      return;
    const raw = form.dataset.raw === undefined ? body : body[form.dataset.raw];
    const answer = await call(method, path, method === 'GET' || method === 'DELETE' ? undefined : raw);
    const place = form.dataset.result && document.getElementById(form.dataset.result);
    if (place) place.textContent = JSON.stringify(answer, null, 2);
    else form.closest('dialog')?.close();
    finish(answer, submitter?.dataset.done ?? form.dataset.done, form.dataset.then);
  } catch (problem) {
    error.textContent = errorText(problem) + (problem.hint ? `\n${problem.hint}` : '');
  }
}
document.addEventListener('click', event => {
  const target = event.target.closest(
    '[data-call],[data-dialog],[data-copy],[data-close],[data-theme-switch],[data-zone-switch],[data-pause]',
  );
  if (!target || target.nodeName === 'FORM' || target.type === 'submit') return;
  const { call: what, dialog, copy: text } = target.dataset;
  if (what) act(target);
  else if (dialog) document.getElementById(dialog)?.showModal();
  else if (text !== undefined) copy(text || target.closest('[data-copy-from]')?.textContent || '');
  else if (target.dataset.close !== undefined) target.closest('dialog').close();
  else if (target.dataset.themeSwitch !== undefined) nextTheme();
  else if (target.dataset.zoneSwitch !== undefined) nextZone();
  else setPaused(!paused);
});
document.addEventListener('submit', event => {
  const form = event.target;
  if (form.dataset.call === undefined) return;
  event.preventDefault();
  send(form, event.submitter);
});

// ---- Theme and zone.
const THEMES = [null, 'light', 'dark'];
function nextTheme() {
  const next = THEMES[(THEMES.indexOf(stored.get('theme')) + 1) % THEMES.length];
  stored.set('theme', next);
  next ? (document.documentElement.dataset.theme = next) : delete document.documentElement.dataset.theme;
  showSwitches();
  document.dispatchEvent(new CustomEvent('highwater:theme'));
}
function nextZone() {
  zone = zone === 'utc' ? 'local' : 'utc';
  stored.set('zone', zone);
  showSwitches();
  showLocal(document);
  document.dispatchEvent(new CustomEvent('highwater:zone'));
}
function showSwitches() {
  for (const button of $$('[data-theme-switch]'))
    button.textContent = { light: 'Light', dark: 'Dark' }[stored.get('theme')] ?? 'Auto';
  for (const button of $$('[data-zone-switch]')) button.textContent = zone === 'utc' ? 'UTC' : 'Local';
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () =>
  document.dispatchEvent(new CustomEvent('highwater:theme')),
);

// ---- Keys.
const PLACES = {
  o: '/',
  j: '/console/jobs',
  h: '/console/hubs',
  q: '/console/queues',
  r: '/console/processors',
  w: '/console/workflows',
  d: '/console/dead-letters',
  c: '/console/circuits',
  p: '/console/playground',
};
let prefix = -Infinity;
document.addEventListener('keydown', event => {
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.target.closest('input,textarea,select,[contenteditable]') ||
    $('dialog[open]')
  )
    return;
  const after = performance.now() - prefix < 1500;
  prefix = -Infinity;
  if (after && PLACES[event.key]) location.assign(PLACES[event.key]);
  else if (event.key === 'g') {
    prefix = performance.now();
    return;
  } else if (event.key === '/') openSearch();
  else if (event.key === 'p') setPaused(!paused);
  else if (event.key === '?') $('#keys').showModal();
  else return;
  event.preventDefault();
});

// ---- Search of names.
let names = [];
async function openSearch() {
  $('#search').showModal();
  const field = $('#search input');
  field.value = '';
  const list = async (path, field, kind, to) => {
    const answer = await call('GET', path).catch(() => null);
    return (answer?.[field] ?? []).map(({ name }) => ({ name, kind, path: to(name) }));
  };
  const below = path => name => `${path}/${encodeURIComponent(name)}`;
  const lists = await Promise.all([
    list('/api/jobs', 'jobs', 'job', below('/console/jobs')),
    list('/api/hubs', 'hubs', 'hub', below('/console/hubs')),
    list('/api/queues', 'queues', 'queue', below('/console/queues')),
    list('/api/processors', 'processors', 'processor', below('/console/processors')),
    list('/api/workflows', 'workflows', 'workflow', name => `/console/workflows?workflow=${encodeURIComponent(name)}`),
  ]);
  names = lists.flat();
  showFound();
}
function showFound() {
  const text = $('#search input').value.trim().toLowerCase();
  const found = names.filter(({ name }) => name.toLowerCase().includes(text)).slice(0, 50);
  $('#found').replaceChildren(
    ...found.map(({ name, kind, path }) =>
      element('li', {}, element('a', { href: path }, name, element('span', { class: 'sub' }, kind))),
    ),
  );
  $('#none').hidden = found.length > 0;
}

document.addEventListener('DOMContentLoaded', () => {
  showSwitches();
  showLocal(document);
  $('#search input')?.addEventListener('input', showFound);
  $('#search form')?.addEventListener('submit', event => {
    event.preventDefault();
    $('#found a')?.click();
  });
  connect();
});
