// Sets the theme before the first paint; the switch is in shell.js.
try {
  const theme = localStorage.getItem('theme');
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  /* no storage: the system's theme */
}
