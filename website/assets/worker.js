/* Where a page is opened from a folder, browsers allow no worker. This runs one in a hidden frame instead. */
if (location.protocol === "file:")
  window.Worker = class {
    constructor(address) {
      this.onmessage = this.onerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) =>
        setTimeout(() => this.onmessage && this.onmessage(new MessageEvent("message", { data })));
      const script = inside.document.createElement("script");
      script.src = new URL(address, document.baseURI);
      script.onerror = () => this.onerror && this.onerror(new Event("error", { cancelable: true }));
      script.onload = () => {
        this.inside = inside;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      inside.document.head.appendChild(script);
    }
    postMessage(data) {
      if (!this.inside) this.waiting.push(data);
      else setTimeout(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
