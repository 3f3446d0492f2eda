// Operations on many items: a dry run tells how many and which, then the reader confirms. The specification is in data-bulk of the button.
'use strict';
// A block of its own: the scripts of a page share their names.
{
  const dialog = $('#bulk'), form = $('#bulk form'), go = $('#bulk-go'), count = $('#bulk-count'), error = $('.field-error', dialog), cancel = $('[data-close]', dialog);
  let spec, turn = 0, done;
  const amount = count => `${count.toLocaleString('en')} ${spec.noun}${count === 1 ? '' : 's'}`;
  const checked = () => $$('[data-item]:checked');
  const show = list => $('#bulk-items').replaceChildren(...list.map(text => element('li', {}, text)));

  // Page by page, each after the one before, so that an item is taken once, while `take` says to go on.
  async function run(options, take) {
    const mine = ++turn, { note, step } = form;
    go.disabled = true;
    count.textContent = error.textContent = '';
    show([]);
    try {
      for (const { path, body } of spec.calls) {
        let answer;
        do {
          answer = await call('POST', path, { ...body, ...(note.value && { note: note.value }), ...(step.value && { step: step.value }), ...options, after: answer?.next });
          if (mine !== turn) return;
        } while (take(answer) && answer.more);
      }
    } catch (problem) {
      if (problem.details) take(problem.details);
      error.textContent = `${errorText(problem)}\n${problem.hint ?? ''}`;
    }
    return mine === turn;
  }
  async function preview() {
    const found = [];
    let over = '';
    if (!await run({ dry_run: true, max: 1000 }, answer => {
      found.push(...(answer.would_replay ?? answer.would_purge ?? answer.would_decide).map(item => item.id ?? item));
      if (answer.more) over = 'over ';
    })) return;
    const text = over + amount(found.length);
    count.textContent = `Affects ${text}.`;
    show(found);
    go.textContent = `${spec.verb} ${text}`;
    go.disabled = !found.length;
  }
  async function apply() {
    const failed = [];
    let good = 0;
    await run({ max: 100 }, answer => {
      good += answer.handled ?? answer.purged ?? answer.decided;
      failed.push(...(answer.failed ?? answer.refused ?? []));
      count.textContent = `${amount(good)} done${failed.length ? `, ${failed.length} failed:` : '.'}`;
      show(failed.map(({ id, reason }) => `${id}: ${reason}`));
      return true;
    });
    done = cancel.hidden = true;
    go.textContent = 'Close';
    go.disabled = false;
  }

  document.addEventListener('click', ({ target }) => {
    const button = target.closest('[data-bulk]');
    if (!button) return;
    spec = JSON.parse(button.dataset.bulk);
    if ('selected' in button.dataset) {
      for (const one of spec.calls) one.body = { ids: checked().filter(({ dataset }) => dataset.of === one.name).map(({ dataset }) => dataset.item) };
      spec.calls = spec.calls.filter(({ body }) => body.ids.length);
    }
    $('#bulk-title').textContent = button.textContent.replace('…', '?');
    $('#bulk-note').hidden = !spec.note;
    $('#bulk-step').hidden = !spec.steps.length;
    form.step.replaceChildren(...spec.steps.map(step => element('option', {}, step)));
    form.reset();
    done = cancel.hidden = false;
    go.className = spec.look;
    dialog.showModal();
    preview();
  });
  form.step.onchange = preview;
  form.onsubmit = event => { event.preventDefault(); done ? dialog.close() : apply(); };
  dialog.onclose = () => { turn++; if (done) location.reload(); };

  document.addEventListener('change', ({ target }) => {
    if ('checkAll' in target.dataset) for (const box of $$('[data-item]')) box.checked = target.checked;
    const { length } = checked();
    for (const button of $$('[data-selected]')) {
      button.disabled = !length;
      button.textContent = button.textContent.replace(/selected[^…]*/, `selected (${length})`);
    }
  });
}
