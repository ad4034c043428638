// Models and data of the browser become uploads, as mvpctl upload sends them: in chunks, and only those that the server
// lacks. Without it, the forms of the page of uploads send whole files.
"use strict";
(() => {
  const CHUNK = 8 << 20; // as the server cuts files
  const AT_ONCE = 3;
  const LONGEST_PAUSE = 15000; // milliseconds
  const STARTED = "mvprune-sending"; // begins the names of what is remembered of uploads

  class Refused extends Error {}

  const later = (milliseconds) => new Promise((done) => {
    setTimeout(done, milliseconds);
    window.addEventListener("online", done, { once: true });
  });
  const size = (bytes) => (bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

  // An answer of the console. A lost connection, and a server that is away, are waited for.
  async function ask(address, options, tell) {
    for (let pause = 500; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      let answer = null;
      try {
        answer = await fetch(address, { method: "POST", redirect: "error", ...options });
      } catch (error) {
        if (error.name === "AbortError") throw error;
        tell("the connection is lost; it goes on by itself");
      }
      if (answer && answer.ok) return answer;
      if (answer && ![408, 502, 503, 504].includes(answer.status)) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const problem = page.querySelector(".problem");
        throw new Refused(problem ? problem.textContent.trim() : `HTTP status ${answer.status}`);
      }
      if (answer) tell("the server is away; it goes on by itself");
      await later(pause);
    }
  }

  const of = (form, name) => form.getAttribute(`data-${name}`); // a field called dataset hides the property
  const hex = (bytes) => [...new Uint8Array(bytes)].map((one) => one.toString(16).padStart(2, "0")).join("");

  // The hashes of all chunks, and where each chunk is.
  async function read(files, tell) {
    const listed = [], places = new Map();
    const total = files.reduce((sum, [, file]) => sum + file.size, 0);
    let done = 0;
    for (const [path, file] of files) {
      const chunks = [];
      for (let at = 0; at < file.size; at += CHUNK) {
        const blob = file.slice(at, at + CHUNK);
        const name = hex(await crypto.subtle.digest("SHA-256", await blob.arrayBuffer()));
        chunks.push(name);
        places.set(name, blob);
        tell(`reading: ${size(done += blob.size)} of ${size(total)}`);
      }
      listed.push([path, file.size, chunks]);
    }
    return [listed, places, total];
  }

  // The reference of an upload with these files. Throws Refused.
  async function send(form, kind, name, files, tell) {
    const address = of(form, "uploads"), token = form.querySelector("[name=form_token]").value;
    const started = `${STARTED} ${address} ${name}`;
    const [listed, places, total] = await read(files, tell);
    for (let round = 0; round < 5; round++) { // a chunk may vanish from the store meanwhile
      const body = new URLSearchParams({ form_token: token, kind, name, files: JSON.stringify(listed) });
      const known = await (await ask(`${address}/begin`, { body }, tell)).json();
      if (!known.missing.length) {
        localStorage.removeItem(started);
        return known.reference;
      }
      let left = known.missing.reduce((sum, chunk) => sum + places.get(chunk).size, 0);
      const waiting = [...known.missing], stop = new AbortController(), { signal } = stop;
      const progress = () => {
        const done = `${size(total - left)} of ${size(total)}`;
        localStorage.setItem(started, done);
        tell(`sending: ${done}`);
      };
      const sendSome = async () => {
        for (let chunk = waiting.shift(); chunk && !signal.aborted; chunk = waiting.shift()) {
          const body = await places.get(chunk).arrayBuffer(); // fails if the file is another one by now
          const headers = { "x-form-token": token };
          await ask(`${address}/${known.digest}/chunks/${chunk}`, { body, headers, signal }, tell);
          left -= body.byteLength;
          progress();
        }
      };
      progress();
      try {
        await Promise.all(Array.from({ length: AT_ONCE }, sendSome));
      } finally {
        stop.abort(); // where one was refused
      }
    }
    throw new Refused("the store loses what is sent to it");
  }

  // What of the chosen files is sent: a data file, or a model's folder without what no model has.
  function sorted(form, isModel, files) {
    if (!isModel) {
      if (files.length !== 1) throw new Refused("choose one file");
      return { name: files[0][1].name, wanted: [[files[0][1].name, files[0][1]]], others: [] };
    }
    const folders = new Set(files.map(([path]) => path.slice(0, Math.max(0, path.indexOf("/")))));
    if (folders.size !== 1 || folders.has("")) throw new Refused("choose one folder");
    const name = [...folders][0], rule = new RegExp(`^(?:${of(form, "sent")})$`);
    const inside = files.map(([path, file]) => [path.slice(name.length + 1), file]);
    const wanted = inside.filter(([path]) => rule.test(path)).sort(([one], [other]) => (one < other ? -1 : 1));
    if (!wanted.length) throw new Refused(`${name} has no file of a model`);
    return { name, wanted, others: inside.filter(([path]) => !rule.test(path) && !/(^|\/)\./.test(path)).map(([path]) => path) };
  }

  // Sends files while `line` says how far it is. Returns the reference; "": it was refused.
  async function sendFiles(form, isModel, files, line) {
    const tell = (text) => { line.textContent = text; };
    line.classList.remove("problem");
    try {
      const { name, wanted, others } = sorted(form, isModel, files);
      const reference = await send(form, isModel ? "model" : "data", name, wanted, tell);
      const some = others.length > 3 ? `${others.slice(0, 3).join(", ")} and ${others.length - 3} more` : others.join(", ");
      tell(`sent${some ? `; not sent, as no part of a model: ${some}` : ""}`);
      return reference;
    } catch (error) {
      if (!(error instanceof Refused || error instanceof DOMException)) throw error;
      line.classList.add("problem");
      tell(`not sent: ${error.message}`); // a DOMException: the file has changed or is gone
      return "";
    }
  }

  const listed = (input) => [...input.files].map((file) => [file.webkitRelativePath || file.name, file]);

  async function entries(item) {
    if (item.isFile) {
      const file = await new Promise((done, failed) => item.file(done, failed));
      return [[item.fullPath.slice(1), file]];
    }
    const reader = item.createReader();
    const found = [];
    for (;;) {
      const some = await new Promise((done, failed) => reader.readEntries(done, failed));
      if (!some.length) return found;
      for (const one of some) found.push(...await entries(one));
    }
  }

  function statusLine(after) {
    const line = document.createElement("p");
    line.className = "note";
    line.setAttribute("role", "status");
    after.after(line);
    return line;
  }

  // Fields of the form that submits a job.
  document.querySelectorAll("[data-drop]").forEach((field) => {
    const form = field.form, isModel = field.dataset.drop === "model";
    const picker = document.createElement("input");
    picker.type = "file";
    picker.webkitdirectory = isModel;
    picker.hidden = true;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = isModel ? "Send a folder" : "Send a file";
    button.setAttribute("aria-label", `${button.textContent} for ${field.name}`);
    field.after(button);
    const line = statusLine(button);
    async function take(files) {
      field.readOnly = button.disabled = true;
      field.value = await sendFiles(form, isModel, files, line) || field.value;
      field.readOnly = button.disabled = false;
    }
    button.addEventListener("click", () => { picker.value = ""; picker.click(); });
    picker.addEventListener("change", () => take(listed(picker)));
    field.addEventListener("dragover", (event) => { event.preventDefault(); field.classList.add("dropping"); });
    field.addEventListener("dragleave", () => field.classList.remove("dropping"));
    field.addEventListener("drop", async (event) => {
      event.preventDefault();
      field.classList.remove("dropping");
      const items = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
      take((await Promise.all(items.map(entries))).flat());
    });
  });

  // Forms that send files and nothing else.
  document.querySelectorAll("form[enctype]").forEach((form) => {
    const picker = form.querySelector("[type=file]"), line = statusLine(form);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const button = form.querySelector("button");
      button.disabled = true;
      if (await sendFiles(form, picker.webkitdirectory, listed(picker), line)) location.reload();
      button.disabled = false;
    });
  });

  // What a reload or a lost browser has interrupted. The files have to be chosen again: pages may not keep them.
  const form = document.querySelector("[data-uploads]");
  const known = form ? `${STARTED} ${of(form, "uploads")} ` : "";
  for (const started of Object.keys(localStorage).filter((key) => form && key.startsWith(known))) {
    const line = document.createElement("p");
    line.className = "checked";
    line.setAttribute("role", "status");
    line.textContent = `The upload of ${started.slice(known.length)} was interrupted at ${localStorage.getItem(started)}. `
      + "Choose it again: only what is missing is sent. ";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Forget it";
    button.addEventListener("click", () => { localStorage.removeItem(started); line.remove(); });
    line.append(button);
    form.before(line);
  }
})();
