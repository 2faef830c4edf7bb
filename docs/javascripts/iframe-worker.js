// Browsers start no worker from a page that is opened as a file. There a hidden frame runs the
// search instead. Material's plugin `offline` would load such a script from elsewhere.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<script src="${new URL(url, location.href)}"></script>`;
      this.started = new Promise((resolve) => this.frame.addEventListener("load", resolve));
      this.started.then(() => {
        this.frame.contentWindow.postMessage = (data) =>
          setTimeout(() => this.dispatchEvent(new MessageEvent("message", {data})));
      });
      document.body.append(this.frame);
    }

    postMessage(data) {
      const message = new MessageEvent("message", {data});
      this.started.then(() => this.frame.contentWindow.dispatchEvent(message));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
