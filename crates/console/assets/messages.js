// Hubs and queues: sends one as it was typed, follows a hub, shows what a reset would change.
'use strict';
document.addEventListener('submit', async event => {
  const form = event.target, { send: path, toPartition, done, then } = form.dataset;
  if (path === undefined) return;
  event.preventDefault();
  const error = $('.field-error', form), text = form.elements.body.value;
  const filled = selector => $$(selector, form).filter(field => field.value.trim());
  let type = 'application/json';
  try { JSON.parse(text); } catch { type = 'text/plain'; }
  error.textContent = '';
  try {
    const [partition] = filled('[data-partition]');
    const query = filled('[data-query]').map(field => `${field.dataset.query}=${encodeURIComponent(field.value)}`).join('&');
    const headers = Object.fromEntries(filled('[data-header]').map(field => [field.dataset.header, field.value.trim()]));
    const to = partition ? toPartition.replace('{}', encodeURIComponent(partition.value.trim())) : path;
    const answer = await call('POST', query ? `${to}?${query}` : to, new Blob([text], { type }), headers);
    if (then) form.closest('dialog').close();
    finish(answer, answer.count ? 'Stored {count} events.' : done, then);
  } catch (problem) { error.textContent = errorText(problem) + (problem.hint ? `\n${problem.hint}` : ''); }
});

// ---- Follow a hub. At high rates it shows the first events of each second: the stream is closed until the next one.
document.addEventListener('DOMContentLoaded', () => {
  const tail = $('#tail'), button = $('#tail-switch'), ROWS = 100;
  if (!tail) return;
  const list = $('#tail-events'), note = $('#tail-note');
  let on = false, source = null, fresh = [], seen = 0, timer = 0;
  const plain = bytes => /^[\x20-\x7e\s]*$/.test(bytes) ? bytes : [...bytes].slice(0, 256).map(c => c.charCodeAt(0).toString(16).padStart(2, '0')).join(' ');
  function entry({ partition, offset, enqueued, key, headers, value, value_base64: raw }) {
    const text = raw === undefined ? JSON.stringify(value, null, 2) : plain(atob(raw));
    const span = (name, text) => element('span', name ? { class: name } : {}, text);
    const facts = [['Partition', partition], ['Offset', offset], ['Enqueued', enqueued], ['Key', key ?? 'none'], ...Object.entries(headers ?? {})];
    const dl = element('dl', { class: 'facts' }, ...facts.flatMap(([name, fact]) => [element('dt', {}, name), element('dd', {}, typeof fact === 'object' ? JSON.stringify(fact) : String(fact))]));
    return element('details', { class: 'event' },
      element('summary', {}, span('mono', `${partition}/${offset}`), span('mono', clockText(Date.parse(enqueued), 'ms')), span('', key ?? '–'), span('mono', raw === undefined ? JSON.stringify(value) : text)),
      element('div', { class: 'opened' }, element('div', {}, element('pre', { class: 'plain' }, text)), dl));
  }
  const close = () => { source?.close(); source = null; };
  function open() {
    if (!on || source || isPaused() || document.hidden) return;
    source = new EventSource(`/hubs/${encodeURIComponent(tail.dataset.hub)}/messages?from=latest`);
    source.onmessage = ({ data }) => { if (fresh.push(JSON.parse(data)) >= ROWS) close(); };
    source.onerror = () => { if (source?.readyState === EventSource.CLOSED) close(); };
  }
  function show() {
    seen += fresh.length;
    const sampled = fresh.length >= ROWS, count = seen.toLocaleString('en');
    note.textContent = isPaused() ? `Paused after ${count} events.` : seen ? `${count} events of all partitions, newest first${sampled ? '; a sample of each second' : ''}.` : 'Waiting for events.';
    list.prepend(...fresh.reverse().map(entry));
    fresh = [];
    while (list.childElementCount > ROWS) list.lastElementChild.remove();
    open();
  }
  button.addEventListener('click', () => {
    on = !on;
    button.setAttribute('aria-pressed', on);
    button.textContent = on ? 'Stop following' : 'Follow';
    tail.hidden = !on;
    $('#found-events').hidden = on;
    clearInterval(timer);
    on ? (timer = setInterval(show, 1000), open()) : close();
  });
  document.addEventListener('visibilitychange', () => document.hidden ? close() : open());
  document.addEventListener('highwater:pause', ({ detail }) => { detail ? close() : open(); if (on) show(); });
  addEventListener('pagehide', close);
});

// ---- The positions of a group: a preview first, then the change.
document.addEventListener('DOMContentLoaded', () => {
  const dialog = $('#reset'), form = dialog && $('form', dialog);
  if (!form) return;
  const place = $('#reset-preview'), error = $('.field-error', form), sure = $('button[value=reset]', form);
  let group = '';
  const clear = () => { place.replaceChildren(); error.textContent = ''; sure.disabled = true; };
  document.addEventListener('click', ({ target }) => {
    const button = target.closest('[data-reset]');
    if (!button) return;
    group = button.dataset.reset;
    $('#reset-group').textContent = group;
    clear();
    dialog.showModal();
  });
  form.addEventListener('input', clear);
  form.addEventListener('submit', async event => {
    event.preventDefault();
    const dry = event.submitter?.value !== 'reset', partition = form.elements.partition.value.trim();
    const body = { hub: form.dataset.hub, to: form.elements.to.value.trim(), dry_run: dry, ...(partition ? { partition: +partition } : {}) };
    error.textContent = '';
    try {
      const answer = await call('POST', `/api/groups/${encodeURIComponent(group)}/reset`, body);
      if (!dry) { dialog.close(); return toast(`The positions of ${group} are reset.`); }
      preview(answer);
    } catch (problem) { clear(); error.textContent = errorText(problem) + (problem.hint ? `\n${problem.hint}` : ''); }
  });
  function preview({ positions, again, skipped, members }) {
    const number = value => value === null ? 'none' : value.toLocaleString('en');
    const effect = ({ again, skipped }) => again ? `${number(again)} read again` : skipped ? `${number(skipped)} skipped` : 'as before';
    const row = (tag, cells) => element('tr', {}, ...cells.map((cell, at) => element(tag, at ? { class: 'num' } : {}, cell)));
    const rows = positions.slice(0, 200).map(of => row('td', [String(of.partition), number(of.before), number(of.after), effect(of)]));
    const table = element('table', {}, element('thead', {}, row('th', ['partition', 'before', 'after', 'events'])), element('tbody', {}, ...rows));
    const sum = `${number(again)} events are read again, ${number(skipped)} are skipped.`;
    place.replaceChildren(table, element('p', { class: 'sub' }, members ? `${sum} The group has ${number(members)} members: stop them first.` : sum));
    sure.disabled = members > 0;
  }
});
