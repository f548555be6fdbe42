(function () {
  "use strict";
  var config = {
    displaylogo: false,
    responsive: true,
    plotlyServerURL: "",
    showSendToCloud: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]
  };
  var boxes = document.querySelectorAll(".chart");
  boxes.forEach(function (box) {
    var figure = JSON.parse(document.getElementById(box.dataset.figure).textContent);
    Plotly.newPlot(box, figure.data, figure.layout, config);
  });
  window.addEventListener("beforeprint", function () {
    boxes.forEach(function (box) { Plotly.Plots.resize(box); });
  });
}());
