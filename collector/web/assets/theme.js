// SPDX-License-Identifier: Apache-2.0
// Before the first paint: the theme chosen earlier, if any.
(function () {
  "use strict";
  try {
    const t = localStorage.getItem("lanterne-theme");
    if (t === "light" || t === "dark") document.documentElement.dataset.theme = t;
  } catch (e) {
    // No storage: the system's preference stands.
  }
})();
